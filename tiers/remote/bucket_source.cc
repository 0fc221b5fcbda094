#include "tiers/remote/bucket_source.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/crc32c.h"
#include "tiers/remote/object_name.h"
#include "tiers/remote/sealed_header.h"

namespace kvkeep {

struct BucketSource::Finding {
  std::vector<ChunkId> ids;
  std::function<void(Found)> done;
  MonotonicTime deadline{0};

  Mutex mu;
  Found found ABSL_GUARDED_BY(mu);
  size_t left ABSL_GUARDED_BY(mu) = 0;
};

// The header page of one chunk.
struct BucketSource::Probe final : ObjectSink {
  absl::Status Begin(const ObjectHead& head) override {
    object_bytes = head.object_bytes;
    return absl::OkStatus();
  }
  absl::Status Take(std::span<const std::byte> bytes) override {
    KVKEEP_CHECK(bytes.size() <= page.size() - taken);
    std::memcpy(page.data() + taken, bytes.data(), bytes.size());
    taken += bytes.size();
    return absl::OkStatus();
  }
  std::shared_ptr<Finding> finding;
  size_t number = 0;  // among what it looks for
  std::optional<uint64_t> object_bytes;
  std::array<std::byte, kHeaderBytes> page;
  size_t taken = 0;
};

BucketSource::BucketSource(const BucketSourceOptions& options, FleetKeys keys,
                           std::unique_ptr<ObjectStore> store, Clock* clock, RandomSource* random)
    : options_(options),
      keys_(std::move(keys)),
      clock_(*clock),
      random_(*random),
      store_(std::move(store)),
      objects_(*store_) {
  KVKEEP_CHECK(options.probes_at_once > 0 && options.parts_at_once > 0);
  KVKEEP_CHECK(options.part_bytes >= kHeaderBytes && options.part_bytes % kBlockBytes == 0);
}

BucketSource::~BucketSource() { store_.reset(); }

std::string BucketSource::NameOf(const ChunkId& id) const {
  return NameOfObject(keys_.name, options_.epoch, id);
}

bool BucketSource::writable() const {
  return writing_bytes_ < options_.writes_in_flight && objects_.health().writable();
}

void BucketSource::Count(uint64_t BucketSourceCounters::*counter, uint64_t by) {
  MutexLock lock(&mu_);
  counters_.*counter += by;
}

BucketSourceCounters BucketSource::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

// ---- find

void BucketSource::Find(std::vector<ChunkId> ids, std::function<void(Found)> done) {
  KVKEEP_CHECK(!ids.empty());
  const auto finding = std::make_shared<Finding>();
  finding->deadline = After(options_.find_within);
  finding->ids = std::move(ids);
  finding->done = std::move(done);
  {
    MutexLock lock(&finding->mu);
    finding->found.resize(finding->ids.size());
    finding->left = finding->ids.size();
  }
  {
    MutexLock lock(&mu_);
    for (size_t i = 0; i < finding->ids.size(); ++i) probes_.emplace_back(finding, i);
  }
  PumpProbes();
}

void BucketSource::PumpProbes() {
  while (true) {
    const auto probe = std::make_shared<Probe>();
    {
      MutexLock lock(&mu_);
      if (probes_.empty() || probing_ >= options_.probes_at_once) return;
      std::tie(probe->finding, probe->number) = std::move(probes_.front());
      probes_.pop_front();
      ++probing_;
      ++counters_.probes;
    }
    const Finding& finding = *probe->finding;
    // One whose turn comes too late is answered by the store, which looks at deadlines first.
    objects_.Get({.name = NameOf(finding.ids[probe->number]),
                  .range = ByteRange{0, kHeaderBytes},
                  .deadline = finding.deadline},
                 probe.get(), [this, probe](ObjectAnswer answer) { OnProbed(probe, answer); });
  }
}

void BucketSource::OnProbed(const std::shared_ptr<Probe>& probe, const ObjectAnswer& answer) {
  const std::optional<ImageShape> shape = CheckProbe(*probe, answer);
  {
    MutexLock lock(&mu_);
    --probing_;
  }
  Finding& finding = *probe->finding;
  std::optional<Found> found;
  {
    MutexLock lock(&finding.mu);
    finding.found[probe->number] = shape;
    if (--finding.left == 0) found = std::move(finding.found);
  }
  PumpProbes();
  if (found.has_value()) finding.done(*std::move(found));
}

// Anything but proof is absence; what is proven wrong is removed.
std::optional<ImageShape> BucketSource::CheckProbe(Probe& probe, const ObjectAnswer& answer) {
  if (!answer.ok() || probe.taken < kHeaderBytes) {
    const bool cut = answer.ok() || answer.outcome == ObjectOutcome::kShort;
    Count(cut ? &BucketSourceCounters::bad_size
          : answer.outcome == ObjectOutcome::kAbsent  ? &BucketSourceCounters::probes_absent
          : answer.outcome == ObjectOutcome::kLate && answer.attempts == 0
              ? &BucketSourceCounters::probes_late
              : &BucketSourceCounters::probes_failed);
    // Nothing of ours is so small, and the name is.
    if (cut) RemoveBad(probe.finding->ids[probe.number]);
    return std::nullopt;
  }
  const ChunkId& id = probe.finding->ids[probe.number];
  const auto bad = [&](uint64_t BucketSourceCounters::*reason) {
    Count(reason);
    RemoveBad(id);
    return std::nullopt;
  };
  if (!OpenHeader(keys_.header, probe.page)) return bad(&BucketSourceCounters::bad_seal);
  const absl::StatusOr<ImageHeader> header = DecodeHeader(probe.page, keys_.mac);
  if (absl::IsFailedPrecondition(header.status())) {
    Count(&BucketSourceCounters::bad_header);  // of a newer kvkeep: it is left alone
    return std::nullopt;
  }
  if (!header.ok()) return bad(&BucketSourceCounters::bad_header);
  if (header->identity.id != id || header->placement.tier != Tier::kG4 ||
      header->placement.place != keys_.id) {
    return bad(&BucketSourceCounters::bad_identity);
  }
  const ImageShape& shape = header->identity.shape;
  if (probe.object_bytes != shape.blocks().value() * kBlockBytes) {
    return bad(&BucketSourceCounters::bad_size);
  }
  Count(&BucketSourceCounters::probes_found);
  return shape;
}

void BucketSource::RemoveBad(const ChunkId& id) {
  Count(&BucketSourceCounters::removed_bad);
  objects_.Delete({.name = NameOf(id), .deadline = After(options_.remove_within)},
                  [](ObjectAnswer) {});  // else the next one finds it
}

// ---- write, remove

void BucketSource::Write(WriteRequest request) {
  KVKEEP_CHECK(ValidateShape(request.shape).ok());
  struct Writing {
    WriteRequest request;
    std::array<std::byte, kHeaderBytes> header;
    uint64_t bytes;
  };
  const auto writing = std::make_shared<Writing>(Writing{.request = std::move(request)});
  std::copy(writing->request.header.begin(), writing->request.header.end(),
            writing->header.begin());
  SealHeader(keys_.header, &random_, writing->header);
  writing->bytes = writing->request.shape.blocks().value() * kBlockBytes;
  PutObject put{.name = NameOf(writing->request.id),
                .body = {writing->header},
                .crc32c = Crc32c(writing->header),
                .if_absent = true,
                .deadline = After(options_.write_within)};
  for (uint64_t at = kHeaderBytes; at < writing->bytes;) {
    const std::span<const std::byte> run = writing->request.memory(at, writing->bytes - at);
    KVKEEP_CHECK(!run.empty());
    put.crc32c = Crc32c(run, *put.crc32c);
    put.body.push_back(run);
    at += run.size();
  }
  writing_bytes_ += writing->bytes;
  Count(&BucketSourceCounters::writes);
  objects_.Put(std::move(put), [this, writing](ObjectAnswer answer) {
    writing_bytes_ -= writing->bytes;
    absl::Status status =
        ToStatus(answer.outcome, "writing an image beyond the node", answer.error);
    if (!status.ok()) {
      Count(&BucketSourceCounters::failed_writes);
    } else if (answer.outcome == ObjectOutcome::kExists) {
      Count(&BucketSourceCounters::already_there);
    } else {
      Count(&BucketSourceCounters::written_bytes, writing->bytes);
    }
    writing->request.done(std::move(status));
  });
}

void BucketSource::Remove(const ChunkId& id, std::function<void(absl::Status)> done) {
  Count(&BucketSourceCounters::removes);
  objects_.Delete({.name = NameOf(id), .deadline = After(options_.remove_within)},
                  [this, done = std::move(done)](ObjectAnswer answer) {
                    absl::Status status = ToStatus(
                        answer.outcome, "removing an image beyond the node", answer.error);
                    if (!status.ok()) Count(&BucketSourceCounters::failed_removes);
                    done(std::move(status));
                  });
}

}  // namespace kvkeep
