#include "tiers/store/joiner.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/change.h"
#include "tiers/store/saved_recency.h"

namespace kvkeep::store_internal {
namespace {

// How many records or chunks ahead their memory is fetched, if it is in another order than theirs.
constexpr size_t kPrefetchAhead = 8;
// How many holds of the lock a batch of records takes, one after the other. With this number waits
// for a turn are rare, and the batch stays in a core's cache.
constexpr size_t kHoldsOfBatch = 32;

// Returns all records if the value cannot be read.
Doubtful ReadDoubtful(ChunkIndex& index) {
  const absl::StatusOr<std::optional<std::string>> saved = index.GetMeta(kDoubtfulName);
  return saved.ok() ? DecodeDoubtful(*saved) : Doubtful::All();
}

// If the log was damaged, the index's marks of what is stable or clean are not true. The next open
// finds no damage any more, so the damage is noted for good before any record is believed.
absl::Status NoteDamage(ChunkIndex& index, StableMark* mark, Doubtful* noted) {
  *noted = Doubtful::All();
  *mark = {.boot_id = Uuid{}, .sequence = mark->sequence, .clean = false};
  KVKEEP_RETURN_IF_ERROR(SaveDoubtful(index, *noted));
  return index.Sync(*mark);
}

}  // namespace

struct Joiner::MetRecord {
  IndexRecord record;
  bool claimed = false;  // its blocks are on the device, and no other record has them
};

// A device that joins. The joining thread owns it.
struct Joiner::Arrival {
  DeviceTier* tier = nullptr;
  bool at_start = false;
  ChunkIndex* index = nullptr;
  std::unique_ptr<ExtentAllocator> space;
  StableMark mark;
  Doubtful noted;           // the doubtful records that the index has noted
  bool sure = false;        // every record is sure, unless it is in doubt
  bool doubt_grew = false;  // `noted` does not cover all records in doubt
  std::vector<CommitSequence> doubtful, certain;
  DoubtfulRecords doubts;     // made of these
  size_t next_to_forget = 0;  // for Sweeper::ForgetOldest
  size_t at_once = 1;         // records in a batch
  std::vector<MetRecord> batch;
  std::vector<AdoptedChunk> adopted;
  SavedRecency recency;
  uint64_t undecodable = 0;

  // Needs no lock, since nobody else uses the space yet.
  void ClaimBatch() {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i + kPrefetchAhead < batch.size()) {
        space->PrefetchClaim(batch[i + kPrefetchAhead].record.extents);
      }
      const IndexRecord& record = batch[i].record;
      batch[i].claimed =
          TotalBlocks(record.extents) == record.shape.blocks() && space->Claim(record.extents).ok();
    }
  }
  KnownRecord Known(const IndexRecord& record) const {
    const bool above = record.sequence > mark.sequence && !Planted(Canary::kAboveMarkBelieved);
    return {.shape = record.shape,
            .incarnation = record.incarnation,
            .generation = record.generation,
            .sequence = record.sequence,
            .unconfirmed = !sure,
            .doubtful = !sure || noted.contains(record.sequence) || above};
  }
};

Joiner::Joiner(const StoreOptions& options, const StoreDeps& deps, Parts parts)
    : options_(options),
      deps_(deps),
      chunks_(*parts.chunks),
      tiers_(*parts.tiers),
      records_(*parts.records),
      space_(*parts.space),
      trimmer_(*parts.trimmer),
      committer_(*parts.committer),
      learned_(*parts.learned),
      leaver_(*parts.leaver),
      sweeper_(*parts.sweeper),
      scrubber_(*parts.scrubber),
      events_(*parts.events),
      reuse_(*parts.reuse) {}

// If a device cannot be read, the store is destroyed, and nothing may call back into it. So no
// device is here, and no work of one begins, before all of them are read.
absl::Status Joiner::JoinAtStart() {
  std::vector<Arrival> arrivals;
  for (const auto& tier : tiers_.all()) {
    const StoreDeps::DeviceDeps& device = deps_.devices[tier->number];
    if (device.device == nullptr) continue;
    KVKEEP_RETURN_IF_ERROR(BeginJoin(*tier, device));
    KVKEEP_ASSIGN_OR_RETURN(Arrival arrival, ReadRecords(*tier, /*at_start=*/true));
    arrivals.push_back(std::move(arrival));
  }
  Trim();
  for (Arrival& arrival : arrivals) EndJoin(arrival);
  return absl::OkStatus();
}

void Joiner::Attach(size_t device, const StoreDeps::DeviceDeps& deps, StatusCallback done) {
  KVKEEP_CHECK(device < tiers_.size() && deps.device != nullptr);
  DeviceTier& tier = tiers_.at(device);
  absl::Status begun = BeginJoin(tier, deps);
  if (!begun.ok()) return std::move(done)(begun);
  deps.index_executor->Post([this, &tier, done = std::move(done)]() mutable {
    absl::Status joined = Join(tier);
    std::move(done)(std::move(joined));
  });
}

absl::Status Joiner::BeginJoin(DeviceTier& tier, const StoreDeps::DeviceDeps& deps) {
  const ExtentAllocator::Options space{.capacity = deps.device->capacity_blocks(),
                                       .barrier_blocks = deps.device->barrier_blocks()};
  KVKEEP_RETURN_IF_ERROR(space.Validate());
  std::unique_ptr<PlaceIndex> places = tiers_.MakePlaces(space.capacity);
  Section section(&chunks_, Section::Kind::kMaintenance);
  if (tier.presence != DeviceTier::Presence::kAway) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", tier.number, " is here already, or joining"));
  }
  KVKEEP_CHECK(tier.allocator == nullptr && tier.chunks == 0 && tier.has_left == nullptr);
  tier.presence = DeviceTier::Presence::kJoining;
  tier.coming_until = deps_.clock->Now() + kComingPatience;
  tier.device = deps.device;
  tier.index_executor = deps.index_executor;
  tier.sync_executor = deps.sync_executor;
  tier.health = DeviceHealth();
  tier.commits.ForgetRefusals();
  tier.failed_data_sync = absl::OkStatus();
  space_.Limit(tier);
  KVKEEP_CHECK(tier.places == nullptr);
  tier.places = std::move(places);
  return absl::OkStatus();
}

absl::Status Joiner::Join(DeviceTier& tier) {
  absl::StatusOr<Arrival> arrival = ReadRecords(tier, /*at_start=*/false);
  if (!arrival.ok()) {
    leaver_.LetGo(tier);
    return arrival.status();
  }
  Trim();
  EndJoin(*arrival);
  return absl::OkStatus();
}

absl::StatusOr<Joiner::Arrival> Joiner::ReadRecords(DeviceTier& tier, bool at_start) {
  NvmeDevice& nvme = *tier.device;
  Arrival arrival{.tier = &tier, .at_start = at_start, .index = &nvme.index()};
  arrival.space = std::make_unique<ExtentAllocator>(ExtentAllocator::Options{
      .capacity = nvme.capacity_blocks(), .barrier_blocks = nvme.barrier_blocks()});
  KVKEEP_RETURN_IF_ERROR(arrival.space->Claim(nvme.ReservedExtents()));
  KVKEEP_ASSIGN_OR_RETURN(arrival.mark, arrival.index->ReadStableMark());
  // In the same boot, all written data is in the page cache or on the device, whether or not it was
  // synced. In another boot no record is sure: the data of a young one may be lost, and so may the
  // removal of an old one whose blocks were reused since. Damage in the index's log loses newer
  // records and removals, as a power cut does.
  const bool damaged = arrival.index->stats().log_damages > 0;
  // If the last stop left the device clean, a power cut lost nothing either.
  arrival.sure = (arrival.mark.boot_id == deps_.boot_id || arrival.mark.clean) && !damaged;
  arrival.noted = ReadDoubtful(*arrival.index);
  if (damaged) KVKEEP_RETURN_IF_ERROR(NoteDamage(*arrival.index, &arrival.mark, &arrival.noted));
  arrival.adopted.reserve(std::min(arrival.index->stats().records, options_.max_chunks));
  BeginAdopting(arrival, damaged);
  learned_.Load(tier);
  bool drains = false;
  KVKEEP_ASSIGN_OR_RETURN(const ChunkIndex::ScanResult scanned,
                          arrival.index->Scan([&](const IndexRecord& record) {
                            arrival.batch.push_back({record});
                            if (arrival.batch.size() < arrival.at_once) return true;
                            drains = !AdoptBatch(arrival);
                            return !drains;
                          }));
  if (drains || !AdoptBatch(arrival)) return absl::CancelledError("the store drains");
  arrival.space->EndRecovery();
  arrival.recency = SavedRecency::Read(*arrival.index, arrival.adopted);
  arrival.doubts =
      DoubtfulRecords(std::exchange(arrival.doubtful, {}), std::exchange(arrival.certain, {}));
  InsertByAge(arrival);
  arrival.undecodable = scanned.undecodable;
  return arrival;
}

void Joiner::BeginAdopting(Arrival& arrival, bool damaged) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  // One batch is one section and so one turn. It takes kHoldsOfBatch holds, fewer than a turn may
  // have.
  arrival.at_once = std::max<uint64_t>(1, kHoldsOfBatch * chunks_.hold.max_work() / work::kAdopt);
  DeviceTier& tier = *arrival.tier;
  KVKEEP_CHECK(tier.presence == DeviceTier::Presence::kJoining && tier.chunks == 0);
  const Uuid known_boot = arrival.sure ? deps_.boot_id : arrival.mark.boot_id;
  tier.confirmed_boot = damaged ? Uuid{} : known_boot;
  tier.commits.BeginJoin(arrival.mark.sequence);
  tier.syncs.BeginJoin(arrival.mark);
  tier.joining_blocks = TotalBlocks(tier.device->ReservedExtents()).value();
}

bool Joiner::AdoptBatch(Arrival& arrival) {
  arrival.ClaimBatch();
  chunks_.toucher.Await();  // so that no slot of the batch is touched first under the lock
  std::vector<AdoptedChunk> adopted;
  std::vector<CommitSequence> doubtful, certain;
  adopted.reserve(arrival.batch.size());
  doubtful.reserve(arrival.batch.size());
  certain.reserve(arrival.batch.size());
  {
    Section section(&chunks_, Section::Kind::kJoin);
    DeviceTier& tier = *arrival.tier;
    KVKEEP_CHECK(tier.presence == DeviceTier::Presence::kJoining);
    for (size_t i = 0; i < arrival.batch.size(); ++i) {
      section.YieldIfSpent();
      if (chunks_.draining) return false;
      if (i + kPrefetchAhead < arrival.batch.size()) {
        chunks_.table.PrefetchFind(arrival.batch[i + kPrefetchAhead].record.id);
      }
      const IndexRecord& record = arrival.batch[i].record;
      chunks_.Count(work::kAdopt);
      // At the start, chunks that only G2 has are forgotten for records. Later, records are
      // dropped.
      if (arrival.at_start && chunks_.table.full() && chunks_.table.Find(record.id) == kNoSlot) {
        sweeper_.ForgetOldest(&arrival.next_to_forget);
      }
      if (deps_.recovered_records != nullptr) ++*deps_.recovered_records;
      ++tier.joined_records;
      tier.commits.NoteRecord(record.sequence);
      tiers_.over_quota = tiers_.over_capacity = true;  // perhaps: Trimmer looks later
      const std::optional<ChunkSlot> slot = AdoptRecord(arrival, arrival.batch[i]);
      if (slot.has_value()) adopted.push_back({.sequence = record.sequence, .slot = *slot});
      if (arrival.Known(record).doubtful && record.sequence.value() > 0) {
        doubtful.push_back(record.sequence);
        arrival.doubt_grew |= !arrival.noted.contains(record.sequence);
      } else {
        certain.push_back(record.sequence);
      }
    }
    space_.Share();
  }
  // Its memory grows without the lock.
  arrival.adopted.insert(arrival.adopted.end(), adopted.begin(), adopted.end());
  arrival.doubtful.insert(arrival.doubtful.end(), doubtful.begin(), doubtful.end());
  // If no ranges are noted, all records in doubt are above all others.
  if (!arrival.noted.ranges.empty()) {
    arrival.certain.insert(arrival.certain.end(), certain.begin(), certain.end());
  }
  arrival.batch.clear();
  return true;
}

// Returns the chunk that is stored by this record now, if one is.
std::optional<ChunkSlot> Joiner::AdoptRecord(Arrival& arrival, const MetRecord& met) {
  DeviceTier& tier = *arrival.tier;
  const IndexRecord& record = met.record;
  const bool claimed = met.claimed;
  const KnownRecord known = arrival.Known(record);
  if (claimed) tier.joining_blocks += record.shape.blocks().value();
  const bool usable = claimed && !tier.missed.Covers(record.id) &&
                      tiers_.incarnations.Add(record.incarnation).has_value();
  ChunkSlot slot = kNoSlot;
  const Becomes becomes = usable ? WhatBecomesOf(record.id, known, &slot) : Becomes::kNothing;
  if (becomes == Becomes::kNothing) {
    ++chunks_.counters.recovery_dropped_chunks;
    // Its blocks are freed when the index has forgotten the record.
    tier.commits.Remove({.id = record.id,
                         .extents = claimed ? record.extents : ExtentList(),
                         .sequence = record.sequence,
                         .doubtful = known.doubtful});
    return std::nullopt;
  }
  if (becomes == Becomes::kKept) {
    records_.KeepBeneath(slot, tier, record.extents, known);
    const Chunk& chunk = chunks_.table.at(slot);
    const DeviceTier& other = tiers_.of(chunk);
    const bool ends_it = other.readable() || !other.here();  // then once that one has joined
    const bool stored = chunk.g3_state == G3State::kStored;
    if (stored && ends_it && !records_.Contest(chunk, known)) records_.EndReplaced(chunk);
    return std::nullopt;
  }
  chunks_.EndUnbackedWait(slot);
  Change chunk(&chunks_, slot);
  if (chunk->g3_state == G3State::kStored) records_.LayAside(*chunk, slot);
  events_.NoteTiers(*chunk);  // tells that it has left its old device
  tiers_.shares.Take(chunk->tenant, chunk->blocks());
  tiers_.StoreBy(*chunk, tier, record.extents, known);
  chunk->unadmitted = false;
  records_.EndReplaced(*chunk);
  records_.DoubtTwice(slot);
  return slot;
}

// For a record whose blocks are claimed. Returns whether it becomes the record of the chunk in
// `slot`, is kept beside it, or is of no use.
Joiner::Becomes Joiner::WhatBecomesOf(const ChunkId& id, const KnownRecord& record,
                                      ChunkSlot* slot) {
  *slot = chunks_.table.Find(id);
  if (*slot != kNoSlot && chunks_.table.at(*slot).g3_state == G3State::kStored) {
    const Chunk& chunk = chunks_.table.at(*slot);
    const DeviceTier& other = tiers_.of(chunk);
    if (!chunk.doubtful) {
      // A device that cannot be read, or has not joined itself, may never be read again.
      const bool ends_it = other.syncs.IsStable(chunk.g3_sequence) && other.readable();
      return ends_it && !records_.Contest(chunk, record) ? Becomes::kNothing : Becomes::kKept;
    }
    // A sure record replaces one in doubt, which is kept beside it until this device is here.
    const bool takes_it =
        !record.doubtful && !record.unconfirmed && !chunk.g3_reading && chunk.shape == record.shape;
    return takes_it ? Becomes::kChunk : Becomes::kKept;
  }
  if (*slot == kNoSlot && !chunks_.table.full()) *slot = chunks_.Create(id, record.shape);
  if (*slot == kNoSlot) return Becomes::kNothing;
  const bool created = !chunks_.table.at(*slot).has_g2_space();
  return created || MayBeStoredToo(*slot, record) ? Becomes::kChunk : Becomes::kKept;
}

// For a chunk that is in G2 and not in G3. If callers wait until it is durable, they wait for a
// write, and this record must not replace that.
bool Joiner::MayBeStoredToo(ChunkSlot slot, const KnownRecord& record) const {
  const Chunk& chunk = chunks_.table.at(slot);
  return chunk.g3_state == G3State::kAbsent && chunk.shape == record.shape && chunk.in_g2() &&
         !record.unconfirmed && !tiers_.durable_waiters.Has(slot);
}

// Fetches memory for InsertByAge.
void Joiner::PrefetchInserts(const Arrival& arrival, size_t i) {
  if (i + kPrefetchAhead >= arrival.adopted.size()) return;
  chunks_.slots->Prefetch(arrival.adopted[i + kPrefetchAhead].slot);
}

// Inserts the oldest chunks first. So the youngest is the first whose header is read, and the first
// that the scrub reads. Some chunks may be gone since they were adopted, or may be in the order
// already.
void Joiner::InsertByAge(const Arrival& arrival) {
  const MonotonicTime now = deps_.clock->Now();
  Section section(&chunks_, Section::Kind::kJoin);
  for (size_t i = 0; i < arrival.adopted.size(); ++i) {
    section.YieldIfSpent();
    PrefetchInserts(arrival, i);
    const ChunkSlot slot = arrival.adopted[i].slot;
    const Chunk& chunk = chunks_.table.at(slot);
    const bool still = chunk.live && !chunk.detached && chunk.g3_state == G3State::kStored &&
                       chunk.device == arrival.tier->number &&
                       chunk.g3_sequence == CommitSequence(arrival.adopted[i].sequence);
    chunks_.Count(work::kFind + work::kTouch);
    if (!still) continue;
    if (chunk.unconfirmed) arrival.tier->confirms.AddFirst(slot);
    if (chunk.doubtful) scrubber_.AddUnsure(slot);
    if (chunk.in_g3_policy) continue;
    const Fingerprint fingerprint = tiers_.InsertIntoPolicy(slot, kNoSlot, now);
    reuse_.OnFound(fingerprint, chunk.blocks() * kBlockBytes);
  }
}

void Joiner::EndJoin(Arrival& arrival) {
  MissedDeletes missed;  // destroyed without the lock
  Section section(&chunks_, Section::Kind::kMaintenance);
  DeviceTier& tier = *arrival.tier;
  KVKEEP_CHECK(tier.presence == DeviceTier::Presence::kJoining && tier.allocator == nullptr);
  chunks_.counters.recovery_dropped_chunks += arrival.undecodable;
  chunks_.counters.recovered_chunks += arrival.adopted.size();
  chunks_.counters.missed_delete_overflows += tier.missed.overflowed();
  std::swap(missed, tier.missed);
  tier.commits.EndJoin();
  NoteDoubtful(tier, arrival);
  chunks_.counters.recency_dropped += arrival.recency.dropped;
  tier.unsaved_recency.SetMost(deps_.recency_chunks);
  tier.unsaved_recency.Begin(arrival.recency.newest, arrival.recency.saved_to,
                             tier.commits.committed(), tier.newest_recency());
  tier.last_recency = deps_.clock->Now();
  tier.syncs.EndJoin(tier.last_recency);
  tier.allocator = std::move(arrival.space);
  tier.NoteTaken();
  tier.joining_blocks = 0;
  tier.presence = DeviceTier::Presence::kHere;
  tier.coming_until = MonotonicTime(0);
  events_.NoteReadable(tier.number, tier.readable());
  space_.Share();
  chunks_.PumpLater(tier.pump);
  if (tier.syncs.anyone_waits()) committer_.StartSync(tier);
}

// Evicts what is above quotas and capacities, which may have become smaller. This comes before any
// header of a device is read, since a chunk that is being read cannot be evicted.
void Joiner::Trim() {
  Section section(&chunks_, Section::Kind::kMaintenance);
  trimmer_.NoteChanged();
  trimmer_.Trim(section);
}

// The data of a record above the stable mark may be lost in a power cut, or may have been lost: a
// failed sync or a drive that went away alone may have ended the last process. After a power cut
// every record is in doubt, since the removal of an old one may be lost although its blocks were
// reused. Doubt is kept over restarts until a record was read whole or is gone. Too much doubt only
// costs a second write.
void Joiner::NoteDoubtful(DeviceTier& tier, Arrival& arrival) {
  std::swap(tier.doubts, arrival.doubts);
  tier.doubtful = tier.doubts.Ranges();
  // Records to come must not be in any of these ranges.
  const bool beyond =
      !arrival.noted.ranges.empty() && arrival.noted.ranges.back().to > tier.commits.committed();
  tier.doubtful_saved = !arrival.doubt_grew && !beyond;
  tier.doubt_shrank = tier.doubtful_saved && tier.doubtful != arrival.noted;
  tier.doubt_saved_at = deps_.clock->Now();
}

}  // namespace kvkeep::store_internal
