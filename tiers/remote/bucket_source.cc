#include "tiers/remote/bucket_source.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/crc32c.h"
#include "tiers/remote/object_name.h"
#include "tiers/remote/sealed_header.h"

namespace kvkeep {

struct BucketSource::Finding {
  Finding(std::vector<ChunkId> of_ids, Wanted wanted, const PrefixSearchOptions& options)
      : ids(std::move(of_ids)),
        ends(EndsOf(ids)),
        search(ends.size(), options, wanted == Wanted::kAny) {}

  // Returns the end of each run of consecutive chunks of one key.
  static std::vector<size_t> EndsOf(const std::vector<ChunkId>& ids) {
    std::vector<size_t> ends;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool more = i + 1 < ids.size() && ids[i + 1].ns == ids[i].ns &&
                        ids[i + 1].key == ids[i].key;
      if (!more) ends.push_back(i + 1);
    }
    return ends;
  }
  // Returns the chunk that stands for a key.
  const ChunkId& last_of(size_t key) const { return ids[ends[key] - 1]; }

  const std::vector<ChunkId> ids;
  const std::vector<size_t> ends;
  std::function<void(Found)> done;
  MonotonicTime deadline{0};

  Mutex mu;
  PrefixSearch search ABSL_GUARDED_BY(mu);
  std::map<size_t, ImageShape> shapes ABSL_GUARDED_BY(mu);  // by key, of those that are there
  size_t left ABSL_GUARDED_BY(mu) = 0;                      // of this round
  bool cut ABSL_GUARDED_BY(mu) = false;  // a question was not answered: this round is the last
};

// The header page of one chunk.
struct BucketSource::HeaderProbe : ObjectSink {
  absl::Status Begin(const ObjectHead& of) override {
    KVKEEP_CHECK(taken == 0);
    head = of;
    return absl::OkStatus();
  }
  absl::Status Take(std::span<const std::byte> bytes) override {
    KVKEEP_CHECK(bytes.size() <= page.size() - taken);
    std::memcpy(page.data() + taken, bytes.data(), bytes.size());
    taken += bytes.size();
    return absl::OkStatus();
  }
  ObjectHead head;
  std::array<std::byte, kHeaderBytes> page;
  size_t taken = 0;
};

struct BucketSource::Probe final : HeaderProbe {
  std::shared_ptr<Finding> finding;
  size_t key = 0;  // among those that it looks for
};

BucketSource::BucketSource(const BucketSourceOptions& options, FleetKeys keys,
                           std::unique_ptr<ObjectStore> store, Clock* clock, RandomSource* random)
    : BucketSource(options, std::move(keys), store.get(),
                   std::make_shared<AskLimits>(options.probes_per_second), clock, random) {
  store_ = std::move(store);
}

BucketSource::BucketSource(const BucketSourceOptions& options, FleetKeys keys, ObjectStore* store,
                           std::shared_ptr<AskLimits> limits, Clock* clock, RandomSource* random)
    : options_(options),
      keys_(std::move(keys)),
      clock_(*clock),
      random_(*random),
      limits_(std::move(limits)),
      presence_(options.presence_entries, random->NextU64()),
      objects_(*store) {
  KVKEEP_CHECK(options.probes_at_once > 0 && options.parts_at_once > 0);
  KVKEEP_CHECK(options.writes_in_flight > 0 && limits_ != nullptr);
  KVKEEP_CHECK(options.part_bytes >= kHeaderBytes && options.part_bytes % kBlockBytes == 0);
}

BucketSource::~BucketSource() { store_.reset(); }

std::string BucketSource::NameOf(const ChunkId& id) const {
  return NameOf(id, epoch());
}

std::string BucketSource::NameOf(const ChunkId& id, uint64_t epoch) const {
  return NameOfObject(keys_.name, {.configured = options_.epoch, .begun = epoch}, id);
}

bool BucketSource::readable() const {
  return (options_.begun == nullptr || options_.begun->certain()) && objects_.health().readable();
}

bool BucketSource::writable() const {
  if (options_.begun != nullptr && !options_.begun->certain()) return false;
  return writing_bytes_ < options_.writes_in_flight && objects_.health().writable();
}

void BucketSource::Count(uint64_t BucketSourceCounters::*counter, uint64_t by) {
  MutexLock lock(&mu_);
  counters_.*counter += by;
}

void BucketSource::NoteAbsent(const ChunkId& id) {
  const MonotonicTime now = clock_.Now();
  MutexLock lock(&mu_);
  const std::chrono::nanoseconds for_ever = std::chrono::hours(100'000);
  presence_.Note(id, Presence::State::kAbsent, now,
                 Planted(Canary::kAbsentForEver) ? for_ever : options_.absent_for);
}

BucketSourceCounters BucketSource::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

// ---- find

void BucketSource::Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
                        std::function<void(Found)> done) {
  KVKEEP_CHECK(!ids.empty());
  const auto finding = std::make_shared<Finding>(std::move(ids), wanted, options_.search);
  finding->deadline = std::min(deadline, After(options_.find_within));
  finding->done = std::move(done);
  Count(&BucketSourceCounters::searches);
  StartRound(finding, true);
}

void BucketSource::StartRound(const std::shared_ptr<Finding>& finding, bool in_find) {
  while (true) {
    std::vector<size_t> round;
    {
      MutexLock lock(&finding->mu);
      if (!finding->cut) round = finding->search.NextRound();
      KVKEEP_CHECK(finding->left == 0);
      KVKEEP_CHECK(round.empty() || round.back() < finding->ends.size());
      finding->left = round.size();
    }
    if (round.empty()) return EndFinding(*finding);
    if (AskRound(finding, round, in_find)) return PumpProbes();
  }
}

bool BucketSource::AskRound(const std::shared_ptr<Finding>& finding,
                            const std::vector<size_t>& round, bool in_find) {
  const MonotonicTime now = clock_.Now();
  std::vector<size_t> ask, absent;
  size_t declined = 0;
  bool is_tail = false;
  {
    MutexLock lock(&finding->mu);
    is_tail = finding->search.is_tail();
  }
  {
    MutexLock lock(&mu_);
    ++counters_.search_rounds;
    for (const size_t key : round) {
      const Presence::State known = presence_.Look(finding->last_of(key), now);
      (known == Presence::State::kAbsent ? absent : ask).push_back(key);
    }
    if (in_find && ask.empty()) {
      ask.push_back(absent.front());
      absent.erase(absent.begin());
    }
    counters_.known_absent += absent.size();
    const size_t may = limits_->TakeProbes(TenantTagOf(finding->ids.front().ns), ask.size(),
                                            in_find ? 1 : 0, now);
    KVKEEP_CHECK(may <= ask.size());
    declined = ask.size() - may;
    counters_.probes_declined += declined;
    // A tail drops its first keys: a sliding window is of use from its end.
    if (is_tail) ask.erase(ask.begin(), ask.begin() + static_cast<ptrdiff_t>(declined));
    ask.resize(may);
  }
  bool wait = false;
  {
    // Told before any of the others is asked for, as the last answer ends the round.
    MutexLock lock(&finding->mu);
    for (const size_t key : absent) finding->search.Tell(key, false);
    KVKEEP_CHECK(ask.size() + absent.size() + declined == finding->left);
    finding->left -= absent.size() + declined;
    finding->cut |= declined > 0;
    wait = finding->left > 0;
  }
  MutexLock lock(&mu_);
  for (const size_t key : ask) probes_.emplace_back(finding, key);
  return wait;
}

void BucketSource::EndFinding(Finding& finding) {
  Found found(finding.ids.size());
  uint64_t believed = 0;
  {
    MutexLock lock(&finding.mu);
    KVKEEP_CHECK(finding.left == 0);
    const bool as_told = finding.search.is_tail() ||
                         finding.search.questions() == finding.ends.size();
    size_t begin = 0;
    for (size_t key = 0; key < finding.ends.size(); begin = finding.ends[key], ++key) {
      const bool there =
          as_told ? finding.shapes.contains(key) : key < finding.search.leading();
      if (!there) continue;
      // The last of the prefix was asked for, so there is one.
      const auto shape = finding.shapes.lower_bound(key);
      KVKEEP_CHECK(shape != finding.shapes.end());
      std::fill(found.begin() + static_cast<ptrdiff_t>(begin),
                found.begin() + static_cast<ptrdiff_t>(finding.ends[key]), shape->second);
      believed += finding.ends[key] - begin - (finding.shapes.contains(key) ? 1 : 0);
    }
  }
  Count(&BucketSourceCounters::believed_chunks, believed);
  finding.done(std::move(found));
}

void BucketSource::PumpProbes() {
  while (true) {
    std::pair<std::shared_ptr<Finding>, size_t> next;
    {
      MutexLock lock(&mu_);
      if (probes_.empty() || probing_ >= options_.probes_at_once) return;
      next = std::move(probes_.front());
      probes_.pop_front();
      ++probing_;
      ++counters_.probes;
    }
    const auto probe = std::make_shared<Probe>();
    std::tie(probe->finding, probe->key) = std::move(next);
    const Finding& finding = *probe->finding;
    // The store answers a probe whose turn comes too late, as it looks at deadlines first.
    objects_.Get({.name = NameOf(finding.last_of(probe->key)),
                  .range = ByteRange{0, kHeaderBytes},
                  .deadline = finding.deadline},
                 probe.get(), [this, probe](ObjectAnswer answer) { OnProbed(probe, answer); });
  }
}

void BucketSource::OnProbed(const std::shared_ptr<Probe>& probe, const ObjectAnswer& answer) {
  const Probed probed = CheckProbe(probe->finding->last_of(probe->key), *probe, answer);
  {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(probing_ > 0);
    --probing_;
  }
  const std::shared_ptr<Finding> finding = probe->finding;
  bool round_over = false;
  {
    MutexLock lock(&finding->mu);
    if (probed.answered) {
      finding->search.Tell(probe->key, probed.shape.has_value());
    } else {
      finding->cut = true;
    }
    if (probed.shape.has_value()) {
      KVKEEP_CHECK(finding->shapes.emplace(probe->key, *probed.shape).second);
    }
    KVKEEP_CHECK(finding->left > 0);
    round_over = --finding->left == 0;
  }
  PumpProbes();
  if (round_over) StartRound(finding, false);
}

// Treats an object that is proven wrong as absent, and removes it.
BucketSource::Probed BucketSource::CheckProbe(const ChunkId& id, HeaderProbe& probe,
                                              const ObjectAnswer& answer) {
  if (!answer.ok() || probe.taken < kHeaderBytes) {
    const bool cut = answer.ok() || answer.outcome == ObjectOutcome::kShort;
    Count(cut ? &BucketSourceCounters::bad_size
          : answer.outcome == ObjectOutcome::kAbsent  ? &BucketSourceCounters::probes_absent
          : answer.attempts == 0 && (answer.outcome == ObjectOutcome::kLate ||
                                     answer.outcome == ObjectOutcome::kThrottled)
              ? &BucketSourceCounters::probes_late
              : &BucketSourceCounters::probes_failed);
    // The name is ours, but none of our objects is so small.
    if (cut) RemoveBad(id);
    // An object that is refused alone (archived, say) counts as absent.
    const bool none = answer.outcome == ObjectOutcome::kAbsent ||
                      answer.outcome == ObjectOutcome::kRefused;
    if (none) NoteAbsent(id);
    return {.answered = cut || none};
  }
  const auto bad = [&](uint64_t BucketSourceCounters::*reason) {
    Count(reason);
    RemoveBad(id);
    return Probed{.answered = true};
  };
  if (!OpenHeader(keys_.header, probe.page)) return bad(&BucketSourceCounters::bad_seal);
  const absl::StatusOr<ImageHeader> header = DecodeHeader(probe.page, keys_.mac);
  if (absl::IsFailedPrecondition(header.status())) {
    Count(&BucketSourceCounters::bad_header);  // of a newer kvkeep: leave it alone
    return {.answered = true};
  }
  if (!header.ok()) return bad(&BucketSourceCounters::bad_header);
  const bool of_it = header->identity.id == id || Planted(Canary::kIdentityUnchecked);
  if (!of_it || header->placement.tier != Tier::kG4 || header->placement.place != keys_.id) {
    return bad(&BucketSourceCounters::bad_identity);
  }
  // The seal does not cover payload, and checksums without a key would not find a change of it.
  if (!header->encryption.has_value()) return bad(&BucketSourceCounters::bad_plain);
  const ImageShape& shape = header->identity.shape;
  if (probe.head.object_bytes != shape.blocks().value() * kBlockBytes &&
      !Planted(Canary::kSizeUnchecked)) {
    return bad(&BucketSourceCounters::bad_size);
  }
  Count(&BucketSourceCounters::probes_found);
  return {.answered = true, .shape = shape};
}

std::optional<std::chrono::seconds> BucketSource::AgeOf(const ObjectHead& head) const {
  if (!head.modified.has_value()) return std::nullopt;
  const int64_t now = head.answered.has_value()
                          ? head.answered->value()
                          : static_cast<int64_t>(clock_.UnixMicros() / 1'000'000);
  // A store that does not tell its time may be ahead of this machine.
  return std::chrono::seconds(std::max<int64_t>(0, now - head.modified->value()));
}

void BucketSource::Age(const ChunkId& id,
                       std::function<void(absl::StatusOr<std::chrono::seconds>)> done) {
  {
    MutexLock lock(&mu_);
    ++counters_.probes;
  }
  limits_->TakeProbes(TenantTagOf(id.ns), 1, 1, clock_.Now());
  const auto probe = std::make_shared<HeaderProbe>();
  objects_.Get({.name = NameOf(id),
                .range = ByteRange{0, kHeaderBytes},
                .deadline = After(options_.find_within)},
               probe.get(), [this, id, probe, done = std::move(done)](ObjectAnswer answer) {
                 const Probed probed = CheckProbe(id, *probe, answer);
                 if (!probed.answered) return done(absl::UnavailableError("it is not answered"));
                 if (!probed.shape.has_value()) return done(absl::NotFoundError("it is not there"));
                 done(AgeOf(probe->head).value_or(kAgeless));
               });
}

void BucketSource::RemoveBad(const ChunkId& id) {
  Count(&BucketSourceCounters::removed_bad);
  objects_.Delete({.name = NameOf(id), .deadline = After(options_.remove_within)},
                  [](ObjectAnswer) {});  // else the next one finds it
}

void BucketSource::Check(std::function<void(const ObjectAnswer&)> done) {
  struct Nothing final : ObjectSink {
    absl::Status Begin(const ObjectHead&) override { return absl::OkStatus(); }
    absl::Status Take(std::span<const std::byte>) override { return absl::OkStatus(); }
  };
  // No chunk has a random key.
  const ChunkId nobodys{NamespaceDigest(), random_.Next<ChunkKey>(), PartId(0)};
  const auto nothing = std::make_shared<Nothing>();
  objects_.Get({.name = NameOf(nobodys),
                .range = ByteRange{0, kHeaderBytes},
                .deadline = After(options_.check_within)},
               nothing.get(),
               [nothing, done = std::move(done)](ObjectAnswer answer) { done(answer); });
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
  PutObject put{.name = NameOf(writing->request.id, writing->request.epoch),
                .body = {writing->header},
                .crc32c = Crc32c(writing->header),
                .if_absent = !writing->request.replace,
                .deadline = After(options_.write_within)};
  for (uint64_t at = kHeaderBytes; at < writing->bytes;) {
    const std::span<const std::byte> run = writing->request.memory(at, writing->bytes - at);
    KVKEEP_CHECK(!run.empty() && run.size() <= writing->bytes - at);
    put.crc32c = Crc32c(run, *put.crc32c);
    put.body.push_back(run);
    at += run.size();
  }
  writing_bytes_ += writing->bytes;
  Count(&BucketSourceCounters::writes);
  if (writing->request.replace) Count(&BucketSourceCounters::replacing_writes);
  objects_.Put(std::move(put), [this, writing](ObjectAnswer answer) {
    KVKEEP_CHECK(writing_bytes_ >= writing->bytes);
    writing_bytes_ -= writing->bytes;
    absl::Status status =
        ToStatus(answer.outcome, "writing an image beyond the node", answer.error);
    if (status.ok()) {
      MutexLock lock(&mu_);
      presence_.Forget(writing->request.id);
    }
    if (!status.ok()) {
      Count(&BucketSourceCounters::failed_writes);
    } else if (answer.outcome == ObjectOutcome::kExists) {
      Count(&BucketSourceCounters::already_there);
      status = absl::AlreadyExistsError("the image is there");
    } else {
      Count(&BucketSourceCounters::written_bytes, writing->bytes);
    }
    writing->request.done(std::move(status));
  });
}

void BucketSource::Remove(const ChunkId& id, std::function<void(absl::Status)> done) {
  Count(&BucketSourceCounters::removes);
  const uint64_t asked_in = epoch();
  objects_.Delete({.name = NameOf(id, asked_in), .deadline = After(options_.remove_within)},
                  [this, asked_in, done = std::move(done)](ObjectAnswer answer) {
                    absl::Status status = ToStatus(
                        answer.outcome, "removing an image beyond the node", answer.error);
                    // It may have been written in the present epoch meanwhile.
                    if (status.ok() && asked_in != epoch()) {
                      status = absl::UnavailableError("an epoch began: remove the image again");
                    }
                    if (!status.ok()) Count(&BucketSourceCounters::failed_removes);
                    done(std::move(status));
                  });
}

}  // namespace kvkeep
