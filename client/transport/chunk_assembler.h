// ChunkAssembler: assembles the frames of a get in the caller's memory, and decides for each chunk
// whether its bytes may be used. Internal; knows nothing of how frames come.
//
// The daemon is not trusted: a frame that breaks the protocol ends the get, bytes that do not match
// their checksums make their chunk kCorrupt. Payload is copied once, and checksummed in the same
// pass (Accept); or the caller receives it in its place and checksums it there (Open, Close). Not
// thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <memory>
#include <span>
#include <vector>

#include "client/transport/chunk_frame.h"
#include "client/transport/destination.h"
#include "client/values/types.h"

namespace kvkeep::client {

class ChunkAssembler {
 public:
  // `keys` and `parts`: the numbers of keys and of parts asked for.
  ChunkAssembler(GetOptions options, size_t keys, size_t parts);

  // INTERNAL: the frame breaks the protocol; the get must end.
  absl::Status Accept(const ChunkFrame& frame);
  // The two halves of Accept, for a frame whose payload is still to come; its `payload` is empty.
  // Open checks the frame and returns the place of its payload. An empty place: there is no
  // payload, or it does not fit in one run; then `payload` must be set before Close, which copies
  // it.
  absl::StatusOr<std::span<std::byte>> Open(const ChunkFrame& frame);
  // `right`: the bytes in the place match the frame's checksums; of no meaning without a place.
  absl::Status Close(const ChunkFrame& frame, bool right);
  bool verifies() const { return options_.verify; }
  // Chunks that never finished are kUnfinished.
  std::vector<GetOutcome> TakeOutcomes() { return std::move(outcomes_); }

  size_t finished_chunks() const { return finished_; }
  uint64_t delivered_bytes() const { return delivered_bytes_; }
  uint64_t corrupt_chunks() const { return corrupt_; }  // found here, not by the daemon

 private:
  struct Progress {
    bool started = false;
    bool finished = false;
    GetStatus fate = GetStatus::kHit;  // its status once the last frame has come
    uint64_t expected = 0;             // bytes of the range asked for
    uint64_t received = 0;
    Destination destination;
  };

  absl::Status Begin(size_t chunk, const ChunkFrame& frame);
  absl::Status CheckBytes(size_t chunk, const ChunkFrame& frame) const;
  // Returns false if the bytes do not match the frame's checksums.
  bool Copy(const ChunkFrame& frame, Destination& to) const;
  void Finish(size_t chunk, GetStatus status);

  GetOptions options_;
  const Destinations destinations_;
  bool in_place_ = false;  // the payload of the frame that was opened
  const size_t keys_;
  const size_t parts_;
  std::vector<Progress> progress_;
  std::vector<GetOutcome> outcomes_;
  size_t finished_ = 0;
  uint64_t delivered_bytes_ = 0;
  uint64_t corrupt_ = 0;
};

}  // namespace kvkeep::client
