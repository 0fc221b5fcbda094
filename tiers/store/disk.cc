#include "tiers/store/disk.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

Disk::Disk(const StoreOptions& options, const StoreDeps& deps, std::vector<Shares::Claim> claims,
           std::vector<const DataKey*> keys, std::shared_ptr<CipherBuffers> buffers, Parts parts)
    : tiers(options, deps, std::move(claims), parts.chunks, parts.events),
      records(parts.chunks, &tiers, parts.scrubber, parts.events, deps.clock),
      space(options, parts.chunks, &tiers, &records),
      trimmer(parts.chunks, &tiers, &space),
      committer(parts.chunks, &tiers, &records, deps.clock, &writes),
      writes(options, deps, parts.chunks, &tiers, &space, &committer, std::move(keys),
             std::move(buffers)),
      confirmer(deps, parts.chunks, &tiers, &records, &committer, parts.verifier),
      learned(options.tenants, parts.chunks, &tiers),
      recency(parts.chunks, &tiers, &learned, deps.clock),
      leaver(deps.clock, parts.chunks, &tiers, &records, &space, &committer, parts.events),
      joiner(options, deps,
             {.chunks = parts.chunks,
              .tiers = &tiers,
              .records = &records,
              .space = &space,
              .trimmer = &trimmer,
              .committer = &committer,
              .learned = &learned,
              .leaver = &leaver,
              .sweeper = parts.sweeper,
              .scrubber = parts.scrubber,
              .events = parts.events,
              .reuse = parts.reuse}),
      chunks_(*parts.chunks),
      filler_(*parts.filler),
      events_(*parts.events),
      clock_(*deps.clock),
      sync_interval_(options.sync_interval) {
  for (const auto& each : tiers.all()) {
    DeviceTier& tier = *each;
    tier.pump.SetWork([this, &tier] {
      chunks_.AssertHeld();
      Pump(tier);
    });
  }
}

void Disk::Pump(DeviceTier& tier) {
  committer.PumpIndex(tier);
  filler_.PumpReads(tier);
  writes.PumpUnbacked(tier);
  writes.PumpWrites(tier);
  confirmer.Pump(tier);
  const absl::Status failed = tier.health.failed_sync();
  if (!failed.ok() && !tier.syncs.Answer(failed, chunks_.hold)) chunks_.PumpLater(tier.pump);
}

void Disk::Tick(Section& section, std::chrono::nanoseconds passed) {
  const MonotonicTime now = clock_.Now();
  for (const auto& each : tiers.all()) {
    DeviceTier& tier = *each;
    if (tier.heard.exchange(false)) tier.health.NoteHeard();
    chunks_.counters.device_silences += tier.health.NoteTime(passed, tier.busy());
    tier.health.RetryIfDue(now);
    events_.NoteReadable(tier.number, tier.readable());
    committer.PumpIndex(tier);
    writes.PumpUnbacked(tier);
    writes.PumpWrites(tier);
    confirmer.Pump(tier);
    leaver.Tick(tier);
    committer.Tick(tier);
    if (tier.here()) recency.SaveIfDue(section, tier);
    section.YieldIfSpent();
    if (tier.here() && tier.DoubtIsDue(now)) tier.syncs.NoteDirty();
    if (tier.syncs.IsDue(now, sync_interval_)) committer.StartSync(tier);
  }
  // While a device joins, it is not known yet what is above a limit.
  if (!tiers.AnyJoins()) trimmer.Trim(section);
}

bool Disk::at_rest() const {
  if (writes.waits_for_device() || !trimmer.at_rest()) return false;
  return std::all_of(tiers.all().begin(), tiers.all().end(),
                     [](const auto& tier) { return tier->at_rest(); });
}

void Disk::WhenDurable(const ChunkId& id, StatusCallback done) {
  Section section(&chunks_);
  const ChunkSlot slot = chunks_.table.Find(id);
  if (slot != kNoSlot && chunks_.table.at(slot).doubtful) records.SetAside(slot);
  if (slot == kNoSlot || chunks_.table.at(slot).unconfirmed || chunks_.table.at(slot).doubtful) {
    return chunks_.CallLater(std::move(done),
                             absl::NotFoundError("no such chunk, or not for certain"));
  }
  Chunk& chunk = chunks_.table.at(slot);
  if (chunk.g3_state == G3State::kStored) {
    DeviceTier& tier = tiers.of(chunk);
    if (tier.syncs.IsStable(chunk.g3_sequence)) {
      return chunks_.CallLater(std::move(done), absl::OkStatus());
    }
    tier.syncs.Wait(chunk.g3_sequence, std::move(done));
    return committer.StartSync(tier);
  }
  tiers.durable_waiters.Add(slot, std::move(done));
  if (!tiers.empty() && chunk.g2_state == G2State::kUnverified) filler_.Verify(slot);
  if (!tiers.empty() && chunk.being_read()) return filler_.Hurry(slot);  // it is written after that
  if (chunk.g3_state == G3State::kAbsent && chunk.resident()) {
    writes.Queue(slot, std::nullopt, true);
  }
  // The chunk is on its way now, or no device took it.
  if (!chunks_.table.at(slot).dirty()) writes.WaitForDevice(slot);
}

void Disk::SyncAll(StatusCallback done) {
  Section section(&chunks_);
  for (const auto& tier : tiers.all()) {
    if (chunks_.draining && tier->here()) recency.Save(section, *tier);  // may yield
  }
  committer.WhenAllStable(std::move(done));
}

// Checks that the taken blocks of each device are those of its chunks or are being freed.
void Disk::CheckInvariants(std::vector<uint64_t> blocks,
                           const std::vector<uint64_t>& stored) const {
  records.CheckInvariants(blocks);
  writes.CheckInvariants();
  for (const auto& each : tiers.all()) {
    const DeviceTier& tier = *each;
    const uint64_t taken = blocks[tier.number];
    KVKEEP_CHECK(stored[tier.number] == tier.chunks);
    if (tier.presence == DeviceTier::Presence::kAway) {
      KVKEEP_CHECK(taken + tier.used_blocks() + tier.chunks == 0);
      KVKEEP_CHECK(tier.commits.freeing_blocks() == 0 && tier.allocator == nullptr);
      continue;
    }
    KVKEEP_CHECK(!tier.here() || tier.allocator != nullptr);
    if (tier.allocator != nullptr) tier.allocator->CheckInvariants();
    const uint64_t labels = TotalBlocks(tier.device->ReservedExtents()).value();
    const bool begun = tier.allocator != nullptr || tier.joining_blocks > 0;
    KVKEEP_CHECK(tier.used_blocks() ==
                 taken + tier.commits.freeing_blocks() + (begun ? labels : 0));
    KVKEEP_CHECK(tiers.over_capacity || !tier.over_capacity());
    uint64_t in_order = 0;
    for (const auto& policy : tier.policies) in_order += policy->size();
    KVKEEP_CHECK(tier.places->size() == in_order);
    if (tier.here()) CheckDoubt(tier);
  }
}

// Checks that the saved ranges cover all records in doubt, or are about to.
void Disk::CheckDoubt(const DeviceTier& tier) const {
  const Doubtful covered = tier.doubts.Ranges();
  uint64_t in_doubt = 0;
  const auto check = [&](bool doubtful, CommitSequence sequence) {
    if (!doubtful || sequence.value() == 0) return;
    KVKEEP_CHECK(covered.contains(sequence));
    ++in_doubt;
  };
  for (uint32_t i = 0; i < chunks_.table.slot_end(); ++i) {
    const Chunk& chunk = chunks_.table.at(ChunkSlot(i));
    const bool stored = chunk.live && chunk.g3_state == G3State::kStored;
    if (stored && chunk.device == tier.number) check(chunk.doubtful, chunk.g3_sequence);
  }
  for (const auto& [at, replaced] : records.kept().all()) {
    const bool kept = replaced.kept() && at.device == tier.number;
    check(kept && replaced.record.doubtful, replaced.record.sequence);
  }
  for (const PendingRemove& remove : tier.commits.removes()) {
    check(remove.doubtful, remove.sequence);
  }
  KVKEEP_CHECK(in_doubt <= tier.doubts.size());
}

}  // namespace kvkeep::store_internal
