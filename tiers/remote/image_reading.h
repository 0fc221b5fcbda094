// An image on its way here: its parts, and where their bytes go. For BucketSource alone.
#pragma once

#include <memory>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/remote/bucket_source.h"

namespace kvkeep {

struct BucketSource::Reading {
  Reading(ReadRequest of_request, std::string of_name, MonotonicTime until)
      : request(std::move(of_request)),
        name(std::move(of_name)),
        deadline(until),
        bytes(request.shape.blocks().value() * kBlockBytes) {}

  const ReadRequest request;
  const std::string name;
  const MonotonicTime deadline;
  const uint64_t bytes;      // of the object
  uint64_t part_bytes = 0;   // constant once it has begun

  Mutex mu;
  std::string etag ABSL_GUARDED_BY(mu);       // of the first part, once that has begun
  bool begun ABSL_GUARDED_BY(mu) = false;     // the first part has, or has ended
  uint64_t next ABSL_GUARDED_BY(mu) = 0;      // where the next part begins
  absl::Status failed ABSL_GUARDED_BY(mu);    // the first failure
  std::vector<ObjectCall> calls ABSL_GUARDED_BY(mu);
  uint32_t under_way ABSL_GUARDED_BY(mu) = 0;
};

// Takes the bytes of one part. Reports the header page, and the bytes of each piece when the piece
// or the part ends.
class BucketSource::PartSink final : public ObjectSink {
 public:
  PartSink(BucketSource* source, std::shared_ptr<Reading> reading, uint64_t first, uint64_t end)
      : source_(*source), reading_(std::move(reading)), at_(first), told_(first), end_(end) {
    KVKEEP_CHECK(first < end && end <= reading_->bytes && first % kBlockBytes == 0);
  }

  absl::Status Begin(const ObjectHead& head) override;
  absl::Status Take(std::span<const std::byte> bytes) override;
  // Reports all bytes not reported yet as ended with `status`.
  void TellRest(const absl::Status& status);

  bool first() const { return is_first_; }
  bool complete() const { return at_ == end_; }
  // Returns why it refused the answer, or OK.
  const absl::Status& refused() const { return refused_; }

 private:
  absl::Status Refuse(absl::Status why) { return refused_ = std::move(why); }
  absl::Status TellHeader();
  void TellPiece(const absl::Status& status, uint64_t to);

  BucketSource& source_;
  const std::shared_ptr<Reading> reading_;
  uint64_t at_;    // in the image: the next byte that comes
  uint64_t told_;  // up to here
  const uint64_t end_;
  const bool is_first_ = at_ == 0;
  absl::Status refused_;
};

}  // namespace kvkeep
