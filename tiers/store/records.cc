// Records beside a chunk's own. There are two cases: a chunk that is put anew, and a chunk that two
// devices have a record of.
//
// A chunk is put anew while its record is in doubt, or its device out of reach. The old record may
// be all that keeps a promise: if a chunk that was put durable is put once more, it has to survive
// a loss of power at every moment of the second put. So the old record stays, and its image with
// it, until one of these has happened: the new chunk's record has overwritten it and is on stable
// storage; the new chunk is deleted, and the old one with it; its space is wanted and no chunk can
// be evicted instead. If the new chunk is evicted from G2 before it is in G3, or found damaged, the
// old record becomes the chunk's again.
//
// A power cut in between leaves two records on two devices, and neither is sure: the new record's
// data may not have arrived, and the old record's data may be overwritten. One record becomes the
// chunk's. The other is kept until every byte of the first was read and is right (scrub_reader.h
// has it read). If a byte is wrong, the kept record becomes the chunk's. Two records that are sure,
// both of earlier processes, are treated alike. A chunk has only one record, so one of the two came
// back when a drive lost its power alone.
//
// Why nothing is lost: an entry of replaced_ belongs to a chunk and a device. For each entry this
// holds at all times (CheckInvariants):
// 1. A chunk under its name can be found, and is not stored on that device. So the index there has
//    no record under the name but the entry's. No removal of that name is sent (HasOther). Only an
//    add may be sent, which overwrites the record.
// 2. Its image has its blocks: the allocator counts them as taken, no other chunk has them, and
//    they count as its owner's. A removal that is sent names them.
// 3. It ends in one of four ways. The new record overwrites it (TakeReplaced; OverwrittenRecord, if
//    its image is still read then): the new data is stable before that is committed, and the blocks
//    are free once the new record is stable. Or the new record is stable on another device
//    (EndReplaced). Or it becomes the chunk's record again (BecomeReplaced). Or nobody relies on it
//    any more: the chunk is deleted, the space is wanted, or the new chunk had another shape and is
//    gone (Forget, EvictKept).
// 4. A batch that fails leaves it as it was (RestoreReplaced), unless 3 has happened meanwhile.
// 5. While the chunk's own record is in doubt, or both are sure, the scrub has the chunk in its
//    queue, unless the chunk is nobody's.
#include "tiers/store/records.h"

#include <utility>

#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/change.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {
namespace {

// Returns a kept record of the chunk, preferably one that is not in doubt.
std::optional<ReplacedAt> SurestOf(const ReplacedRecords& records, const ChunkId& id) {
  std::optional<ReplacedAt> surest;
  for (auto at = records.Next(id, 0); at.has_value(); at = records.Next(id, at->device + 1u)) {
    const Replaced& replaced = *records.Find(*at);
    if (!replaced.kept()) continue;
    if (!replaced.record.doubtful) return at;
    if (!surest.has_value()) surest = at;
  }
  return surest;
}

}  // namespace

Records::Records(Chunks* chunks, DeviceTiers* tiers, Scrubber* scrubber, EventHub* events,
                 const Clock* clock)
    : chunks_(*chunks), tiers_(*tiers), scrubber_(*scrubber), events_(*events), clock_(*clock) {}

// ---- a chunk goes

void Records::Detach(ChunkSlot slot) {
  Forget(chunks_.table.at(slot).id);
  // If the chunk cannot leave G3 at once, its record is removed now: a delete waits for no reader.
  const Chunk& chunk = chunks_.table.at(slot);
  const bool stays = chunk.g3_state == G3State::kStored && chunk.g3_reading;
  if (stays || chunk.g3_state == G3State::kCommitting) {
    tiers_.RemoveRecord(tiers_.of(chunk), chunk.id);
  }
  chunks_.Detach(slot);
}

void Records::Remove(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.g3_reading);
  DeviceTier& tier = tiers_.of(chunk);
  tiers_.EraseFromPolicy(chunk, slot, reason);
  chunks_.NoteGone(chunk, LifeSamples::kG3, reason);
  if (Planted(Canary::kReuseBeforeRemoval)) {
    tier.GiveBack(chunk.g3);
    chunk.g3.clear();
  }
  if (!KeepReplaced(chunk, slot)) {
    tiers_.shares.Give(chunk.tenant, chunk.blocks());
    const bool evicted = reason == EvictionPolicy::EraseReason::kEvicted;
    tier.commits.Remove({chunk.id, std::move(chunk.g3), OverwrittenRecord(chunk, slot), evicted,
                         chunk.g3_sequence, chunk.doubtful});
  }
  tiers_.ClearRecord(chunk);
  // If a write makes room, the removal waits for the write's own record (WriteBacker::PumpWrites).
  const bool for_a_write = reason == EvictionPolicy::EraseReason::kEvicted &&
                           (tier.writes.busy() || tier.writes.anyone_waits());
  // Later, since many chunks may go in one hold: one batch has all of their removals.
  if (!tier.commits.under_way() && !for_a_write) chunks_.PumpLater(tier.pump);
}

void Records::Replace(ChunkSlot slot) {
  const Chunk& chunk = chunks_.table.at(slot);
  if (chunk.g3_state == G3State::kStored && !Planted(Canary::kReplacedForgotten)) {
    replaced_.Hold({chunk.id, chunk.device}, slot);
  }
  chunks_.Detach(slot);
}

bool Records::KeepReplaced(Chunk& chunk, ChunkSlot slot) {
  const ReplacedAt at{chunk.id, chunk.device};
  const Replaced* const held = replaced_.Find(at);
  if (held == nullptr || held->holder != slot) return false;
  replaced_.Keep(at, chunk.tenant, std::move(chunk.g3), tiers_.RecordOf(chunk));
  const ChunkSlot now = chunks_.table.Find(chunk.id);
  if (now == kNoSlot) return true;
  const Chunk& anew = chunks_.table.at(now);
  if (anew.g3_state == G3State::kStored) EndReplaced(anew);
  return true;
}

// For a chunk that leaves G3. Returns its record if the chunk was put anew on the same device, so
// that the index has the new record under its name. Until the new record is on stable storage, a
// power cut brings the old one back, and that may be all that keeps a promise. So the old blocks
// are not free before (Committer::FreeWhenStable).
std::optional<KnownRecord> Records::OverwrittenRecord(const Chunk& chunk, ChunkSlot slot) const {
  if (!chunk.detached) return std::nullopt;
  const ChunkSlot now = chunks_.table.Find(chunk.id);
  if (now == kNoSlot || now == slot) return std::nullopt;
  const Chunk& anew = chunks_.table.at(now);
  const bool overwrote = anew.g3_state == G3State::kStored && anew.device == chunk.device;
  if (!overwrote || tiers_.of(chunk).syncs.IsStable(anew.g3_sequence)) return std::nullopt;
  return tiers_.RecordOf(chunk);
}

void Records::KeepBeneath(ChunkSlot slot, DeviceTier& tier, const ExtentList& extents,
                          const KnownRecord& record) {
  const Chunk& chunk = chunks_.table.at(slot);
  tiers_.shares.Take(chunk.tenant, record.shape.blocks().value());
  replaced_.Keep({chunk.id, tier.number}, chunk.tenant, extents, record);
  DoubtTwice(slot);
}

bool Records::SetAside(ChunkSlot slot) {
  Change chunk(&chunks_, slot);
  if (!chunk->doubtful || chunk->g3_reading || !chunk->in_g2()) return false;
  LayAside(*chunk, slot);
  return true;
}

void Records::LayAside(Chunk& chunk, ChunkSlot slot) {
  const KnownRecord record = tiers_.RecordOf(chunk);
  replaced_.Keep({chunk.id, chunk.device}, chunk.tenant, tiers_.TakeOff(chunk, slot), record);
}

std::optional<PendingRemove> Records::TakeReplaced(const ReplacedAt& at) {
  const Replaced* const found = replaced_.Find(at);
  if (found == nullptr || !found->kept()) return std::nullopt;
  Replaced taken = TakeKept(at);
  return PendingRemove{at.id,
                       std::move(taken.extents),
                       taken.record,
                       /*evicted=*/false,
                       taken.record.sequence,
                       taken.record.doubtful};
}

void Records::EndReplaced(const Chunk& chunk) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.detached);
  const Replaced* const here = replaced_.Find({chunk.id, chunk.device});
  if (here != nullptr && !here->kept()) {
    replaced_.Drop({chunk.id, chunk.device});  // its removal will see the new record
  } else if (here != nullptr) {
    tiers_.QueueRemoval(tiers_.of(chunk), *TakeReplaced({chunk.id, chunk.device}));
  }
  if (chunk.doubtful || !replaced_.HasAny(chunk.id)) return;
  // Records on other devices are removed once the chunk's own is on stable storage.
  tiers_.of(chunk).syncs.Wait(
      chunk.g3_sequence, [this, id = chunk.id, device = chunk.device,
                          sequence = chunk.g3_sequence](absl::Status status) {
        Section section(&chunks_);
        const ChunkSlot now = chunks_.table.Find(id);
        // A device gives each sequence once. So the same device and sequence mean the same record,
        // even if the chunk was evicted, put anew, or moved to another slot meanwhile.
        const bool stays = now != kNoSlot && chunks_.table.at(now).g3_state == G3State::kStored &&
                           chunks_.table.at(now).device == device &&
                           chunks_.table.at(now).g3_sequence == sequence;
        if (status.ok() && stays) Forget(id);
      });
}

// Only a removal that came with an add can restore a record. Any other removal of that name is for
// a record that was overwritten earlier, which the index does not have any more.
bool Records::RestoreReplaced(DeviceTier& tier, PendingRemove& remove) {
  if (!remove.with_add) return false;
  const ChunkSlot now = chunks_.table.Find(remove.id);
  KVKEEP_CHECK(remove.replaced.has_value());
  if (now == kNoSlot) return false;
  if (replaced_.contains({remove.id, tier.number})) return false;
  const Chunk& chunk = chunks_.table.at(now);
  if (chunk.g3_state != G3State::kCommitting) return false;  // no longer the add of this batch
  tier.commits.EndFreeing(remove.extents);
  tiers_.shares.Take(chunk.tenant, TotalBlocks(remove.extents).value());
  tiers_.over_quota = tiers_.over_capacity = true;  // perhaps: a limit may have shrunk meanwhile
  replaced_.Keep({remove.id, tier.number}, chunk.tenant, std::move(remove.extents),
                 *remove.replaced);
  return true;
}

void Records::Return(ChunkSlot slot) {
  const std::optional<ReplacedAt> at = SurestOf(replaced_, chunks_.table.at(slot).id);
  if (!at.has_value()) return;
  const ImageShape& shape = replaced_.Find(*at)->record.shape;
  Chunk& chunk = chunks_.table.at(slot);
  // A record of another shape is from another put under this key, which a later put has replaced
  // for good. But a recall is no put, so a recalled chunk takes the record's shape. It has no space
  // any more.
  if (chunk.recalled) {
    chunks_.NoteUnbacked(chunk);  // with the shape that it was counted with
    chunk.shape = shape;
  }
  if (shape != chunk.shape) return;
  // The waiters wait for other bytes than this record's.
  tiers_.durable_waiters.Fail(slot,
                              absl::NotFoundError("the chunk was evicted before it was written"));
  BecomeReplaced(slot, *at);
}

void Records::Lose(ChunkSlot slot) {
  const ChunkId id = chunks_.table.at(slot).id;
  chunks_.Detach(slot);
  const std::optional<ReplacedAt> at = SurestOf(replaced_, id);
  if (!at.has_value() || chunks_.table.full()) return Forget(id);
  const ChunkSlot fresh = chunks_.Create(id, replaced_.Find(*at)->record.shape);
  KVKEEP_CHECK(fresh != kNoSlot);
  ++chunks_.moves;
  Change chunk(&chunks_, fresh);
  BecomeReplaced(fresh, *at);
}

void Records::LeaveToReaders(ChunkSlot slot) {
  Chunk& old = chunks_.table.at(slot);
  // The chunk has no record of its own. One that joined meanwhile may be kept beside it.
  if (old.g3_state != G3State::kStored) return Lose(slot);
  if (old.g3_reading || old.unconfirmed || chunks_.table.full()) return Detach(slot);
  // The record only changes its slot. The device, the shares and the kept records (by id) count it
  // as before, so this uses neither TakeOff nor StoreBy, which count. The old slot loses the record
  // before it is detached. Else its last reader would free the blocks (Settle).
  Chunk copy = old;
  {
    Change change(&chunks_, slot);
    tiers_.EraseFromPolicy(old, slot, EvictionPolicy::EraseReason::kRemoved);
    old.g3.clear();
    old.doubtful = false;
    tiers_.SetState(old, G3State::kAbsent);
  }
  chunks_.Detach(slot);
  const ChunkSlot fresh = chunks_.Create(copy.id, copy.shape);
  KVKEEP_CHECK(fresh != kNoSlot);
  ++chunks_.moves;
  Change change(&chunks_, fresh);
  change->g3 = std::move(copy.g3);
  change->g3_incarnation = copy.g3_incarnation;
  change->g3_generation = copy.g3_generation;
  change->g3_sequence = copy.g3_sequence;
  change->device = copy.device;
  change->doubtful = copy.doubtful;
  tiers_.SetState(*change, G3State::kStored);
  tiers_.InsertIntoPolicy(fresh, kNoSlot, clock_.Now());
  DoubtTwice(fresh);
}

void Records::BecomeReplaced(ChunkSlot slot, const ReplacedAt& at) {
  Chunk& chunk = chunks_.table.at(slot);
  events_.NoteTiers(chunk);  // tells that it has left its old device
  Replaced taken = replaced_.Take(at);
  DeviceTier& tier = tiers_.at(at.device);
  tiers_.StoreBy(chunk, tier, std::move(taken.extents), taken.record);
  tiers_.InsertIntoPolicy(slot, kNoSlot, clock_.Now());
  EndReplaced(chunk);
  DoubtTwice(slot);
  if (!chunk.unconfirmed) return;
  tier.confirms.Add(slot);
  chunks_.PumpLater(tier.pump);
}

// ---- doubt

void Records::EndDoubt(Chunk& chunk) {
  DeviceTier& tier = tiers_.of(chunk);
  chunk.doubtful = false;
  // A read through the kernel's cache proves nothing: the cache may have bytes that a failed write
  // never brought to the device. The kernel reports such a failure once, perhaps to an earlier
  // process.
  if (tier.device->io().direct()) tier.EndDoubt(chunk.g3_sequence);
  if (!chunk.detached) EndReplaced(chunk);
}

// A drive that lost its power alone may have brought one of the two records back, although another
// chunk has its blocks by now. Only a read tells which one that is.
bool Records::Contest(const Chunk& chunk, const KnownRecord& record) const {
  const bool sure = !chunk.doubtful && !record.doubtful && !record.unconfirmed;
  return sure && tiers_.incarnations.At(chunk.g3_incarnation) != chunks_.incarnation();
}

void Records::DoubtTwice(ChunkSlot slot) {
  const Chunk& chunk = chunks_.table.at(slot);
  // A chunk of Nobody waits for a start at which its tenant is configured again.
  if (!chunks_.HasPool(chunk.tenant)) return;
  if (DoubtedTwice(chunk)) scrubber_.AddInDoubt(slot);
}

// A sure record ends the others once it is stable. If it is stable and others are still kept, a
// read tells which one is true (Contest).
bool Records::DoubtedTwice(const Chunk& chunk) const {
  const bool untold = chunk.doubtful || tiers_.of(chunk).syncs.IsStable(chunk.g3_sequence);
  return untold && replaced_.HasAny(chunk.id);
}

// ---- the end of records that are kept

// The other record overwrote the one to be removed, in this batch, or earlier while a reader kept
// the deleted chunk. Or it is a kept one.
bool Records::HasOther(const DeviceTier& tier, const ChunkId& id) const {
  const ChunkSlot now = chunks_.table.Find(id);
  const bool stored = now != kNoSlot && chunks_.table.at(now).device == tier.number &&
                      chunks_.table.at(now).g3_state == G3State::kStored;
  return stored || replaced_.contains({id, tier.number});
}

Replaced Records::TakeKept(const ReplacedAt& at) {
  Replaced taken = replaced_.Take(at);
  tiers_.shares.Give(taken.owner, taken.blocks());
  return taken;
}

void Records::Forget(const ChunkId& id) {
  while (const std::optional<ReplacedAt> at = replaced_.Next(id, 0)) {
    chunks_.Count(work::kLook);
    ForgetOne(*at);
  }
}

void Records::ForgetOne(const ReplacedAt& at, bool evicted) {
  // The chunk that holds it frees the blocks when its last reader is done.
  if (!replaced_.Find(at)->kept()) {
    tiers_.RemoveRecord(tiers_.at(at.device), at.id);
    return replaced_.Drop(at);
  }
  PendingRemove remove = *TakeReplaced(at);
  remove.replaced = std::nullopt;
  remove.evicted = evicted;
  tiers_.QueueRemoval(tiers_.at(at.device), std::move(remove));
}

Evicted Records::EvictKept(DeviceTier& tier, std::optional<TenantId> tenant) {
  chunks_.Count(work::kFind);
  const std::optional<ReplacedAt> at = replaced_.AnyKept(tier.number, tenant);
  if (!at.has_value()) return Evicted::kNone;
  ++chunks_.counters.g3_evictions;
  ++chunks_.tenant_counters[replaced_.Find(*at)->owner.value()].g3_evictions;
  ForgetOne(*at, /*evicted=*/true);
  chunks_.Count(work::kEvict);
  return Evicted::kOne;
}

// The head of this file has the rules.
void Records::CheckInvariants(std::vector<uint64_t>& g3_blocks) const {
  replaced_.CheckInvariants();
  for (const auto& [at, replaced] : replaced_.all()) {
    const ChunkSlot now = chunks_.table.Find(at.id);
    KVKEEP_CHECK(now != kNoSlot && now != replaced.holder);
    const Chunk& chunk = chunks_.table.at(now);  // if stored elsewhere, until that is stable
    const bool stored = chunk.g3_state == G3State::kStored;
    KVKEEP_CHECK(!stored || chunk.device != at.device);
    const bool queued = !chunks_.HasPool(chunk.tenant) || scrubber_.IsInDoubt(now);
    KVKEEP_CHECK(!stored || !chunk.doubtful || queued);
    g3_blocks[at.device] += replaced.blocks();
    if (replaced.kept()) {
      KVKEEP_CHECK(replaced.owner == chunk.tenant);
      continue;
    }
    const Chunk& holder = chunks_.table.at(replaced.holder);
    KVKEEP_CHECK(holder.live && holder.detached && holder.id == at.id && holder.g3_reading);
    KVKEEP_CHECK(holder.g3_state == G3State::kStored && holder.device == at.device);
  }
}

}  // namespace kvkeep::store_internal
