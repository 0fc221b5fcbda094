// Records beside a chunk's own. There are two cases: a chunk that is put anew, and a chunk that two
// devices have a record of.
//
// A chunk is put anew while its record is in doubt, or its device out of reach. The old record may
// be all that keeps a promise: a chunk that was put durable, and is put once more, has to outlive
// the loss of power at every moment of the second put. So the old record stays, and its image with
// it, until one of these: the new chunk's record has overwritten it and is on stable storage; the
// new chunk is deleted, and the old one with it; its space is wanted and no chunk can be evicted
// for that. If the new chunk is evicted from G2 before it is in G3, or found damaged, the old
// record becomes the chunk's again.
//
// A power cut in between leaves two records on two devices, and neither is sure: the new one's data
// may not have arrived, the old one's may be overwritten. One record is taken for the chunk. The
// other stays, as above, until every byte of the first was read and is right (scrub.cc sees to it),
// and takes its place if it is not. Two records that are sure, both of earlier processes, are
// treated alike: a chunk has one record, so a drive that lost its power alone brought one back.
//
// Why nothing is lost. Of an entry of replaced_, for a chunk and a device, at all times
// (CheckReplaced):
// 1. There is a chunk under its name to be found, which is not stored on that device: what else the
//    index there has under the name is the entry's record, so no removal of that name is sent
//    (PumpIndex: `stays`), only an add that overwrites it.
// 2. Its image has its blocks: the allocator has them, no other chunk, and they count as its
//    owner's; a removal that is sent names them.
// 3. It ends in one of four ways. The new record overwrites it (TakeReplaced; OverwrittenRecord,
//    where it is still read then): the new data is stable before that is committed, the blocks are
//    free when the new record is. The new record is stable on another device (EndReplaced). It is
//    the chunk again (BecomeReplaced). Or nobody is promised it any more: deleted, its space
//    wanted, or what was put anew has another shape and is gone (ForgetReplaced, EvictReplaced).
// 4. A batch that fails leaves it as it was (RestoreReplaced), unless 3 has come meanwhile.
// 5. While the chunk itself is in doubt, or both are sure, the scrub has it in its queue, unless it
//    is nobody's.
#include "tiers/base/canary.h"
#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

// That is no chunk's any more; one without a doubt, if there is one.
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

// REQUIRES: it has one.
KnownRecord RecordOf(const Chunk& chunk, const Incarnations& incarnations) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored);
  return {.shape = chunk.shape,
          .incarnation = incarnations.At(chunk.g3_incarnation),
          .generation = chunk.g3_generation,
          .sequence = chunk.g3_sequence,
          .unconfirmed = chunk.unconfirmed,
          .doubtful = chunk.doubtful};
}

}  // namespace

void Core::StoreBy(Chunk& chunk, DeviceTier& tier, ExtentList extents, const KnownRecord& record) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kAbsent && chunk.g3.empty() && !extents.empty());
  KVKEEP_CHECK(chunk.shape == record.shape);
  chunk.g3 = std::move(extents);
  chunk.device = tier.number;
  chunk.g3_incarnation = *incarnations_.Add(record.incarnation);
  chunk.g3_generation = record.generation;
  chunk.g3_sequence = record.sequence;
  chunk.doubtful = record.doubtful;
  chunk.unconfirmed = record.unconfirmed;
  SetG3State(chunk, G3State::kStored);
  ++tier.chunks;
}

ExtentList Core::TakeOff(Chunk& chunk, ChunkSlot slot) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.g3_reading);
  if (chunk.in_g3_policy) {
    g3_policy(chunk).OnErase(slot, EvictionPolicy::EraseReason::kRemoved);
    chunks_.NoteGone(chunk, LifeSamples::kG3, EvictionPolicy::EraseReason::kRemoved);
  }
  chunk.in_g3_policy = false;
  KVKEEP_CHECK(devices_[chunk.device]->chunks > 0);
  --devices_[chunk.device]->chunks;
  ExtentList extents = std::move(chunk.g3);
  chunk.g3.clear();
  chunk.unconfirmed = chunk.doubtful = false;  // that was about the record
  SetG3State(chunk, G3State::kAbsent);
  return extents;
}

void Core::ReplaceChunk(ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  if (chunk.g3_state == G3State::kStored && !Planted(Canary::kReplacedForgotten)) {
    replaced_.Hold({chunk.id, chunk.device}, slot);
  }
  chunks_.Detach(slot);
}

bool Core::KeepReplaced(Chunk& chunk, ChunkSlot slot) {
  const ReplacedAt at{chunk.id, chunk.device};
  const Replaced* const held = replaced_.Find(at);
  if (held == nullptr || held->holder != slot) return false;
  replaced_.Keep(at, chunk.tenant, std::move(chunk.g3), RecordOf(chunk, incarnations_));
  const ChunkSlot now = table_.Find(chunk.id);
  if (now != kNoSlot && table_.at(now).g3_state == G3State::kStored) EndReplaced(table_.at(now));
  return true;
}

// Of a chunk that goes and was put anew: its name is the new record's, on the same device. Until
// that is on stable storage a power cut brings this one back, which may be all that keeps a
// promise. So its blocks are not free before (FreeWhenStable).
std::optional<KnownRecord> Core::OverwrittenRecord(const Chunk& chunk, ChunkSlot slot) const {
  const ChunkSlot now = table_.Find(chunk.id);
  if (now == kNoSlot || now == slot) return std::nullopt;
  const Chunk& anew = table_.at(now);
  const bool overwrote = anew.g3_state == G3State::kStored && anew.device == chunk.device;
  if (!overwrote || devices_[chunk.device]->syncs.IsStable(anew.g3_sequence)) return std::nullopt;
  return RecordOf(chunk, incarnations_);
}

void Core::KeepBeneath(ChunkSlot slot, DeviceTier& tier, const ExtentList& extents,
                       const KnownRecord& record) {
  const Chunk& chunk = table_.at(slot);
  g3_shares_.Take(chunk.tenant, record.shape.blocks().value());
  replaced_.Keep({chunk.id, tier.number}, chunk.tenant, extents, record);
  DoubtTwice(slot);
}

bool Core::SetAside(ChunkSlot slot) {
  Change chunk(&chunks_, slot);
  if (!chunk->doubtful || chunk->g3_reading || !chunk->in_g2()) return false;
  LayAside(*chunk, slot);
  return true;
}

void Core::LayAside(Chunk& chunk, ChunkSlot slot) {
  const KnownRecord record = RecordOf(chunk, incarnations_);
  replaced_.Keep({chunk.id, chunk.device}, chunk.tenant, TakeOff(chunk, slot), record);
}

std::optional<PendingRemove> Core::TakeReplaced(const ReplacedAt& at) {
  const Replaced* const found = replaced_.Find(at);
  if (found == nullptr || !found->kept()) return std::nullopt;
  Replaced taken = replaced_.Take(at);
  g3_shares_.Give(taken.owner, taken.blocks());
  return PendingRemove{at.id, std::move(taken.extents), taken.record, /*evicted=*/false,
                       taken.record.sequence, taken.record.doubtful};
}

void Core::EndReplaced(const Chunk& chunk) {
  KVKEEP_CHECK(chunk.g3_state == G3State::kStored && !chunk.detached);
  const Replaced* const here = replaced_.Find({chunk.id, chunk.device});
  if (here != nullptr && !here->kept()) {
    replaced_.Drop({chunk.id, chunk.device});  // its removal finds the new record
  } else if (here != nullptr) {
    DeviceTier& tier = *devices_[chunk.device];
    tier.commits.Remove(*TakeReplaced({chunk.id, chunk.device}));
    if (!tier.commits.under_way()) PumpLater(tier);
  }
  if (chunk.doubtful || !replaced_.HasAny(chunk.id)) return;
  // On other devices: once it is on stable storage here.
  devices_[chunk.device]->syncs.Wait(
      chunk.g3_sequence, [this, id = chunk.id, device = chunk.device,
                          sequence = chunk.g3_sequence](absl::Status status) {
        Section section(&chunks_);
        const ChunkSlot now = table_.Find(id);
        // A device gives a sequence once: the same device and sequence are the same record,
        // whatever came in between (evicted, put anew, moved to another slot).
        const bool stays = now != kNoSlot && table_.at(now).g3_state == G3State::kStored &&
                           table_.at(now).device == device &&
                           table_.at(now).g3_sequence == sequence;
        if (status.ok() && stays) ForgetReplaced(id);
      });
}

// Another removal of that name is of a record that was overwritten earlier: the index does not have
// it any more, whatever becomes of this batch.
bool Core::RestoreReplaced(DeviceTier& tier, PendingRemove& remove) {
  if (!remove.with_add) return false;
  const ChunkSlot now = table_.Find(remove.id);
  KVKEEP_CHECK(remove.replaced.has_value());
  if (now == kNoSlot) return false;
  if (replaced_.contains({remove.id, tier.number})) return false;
  if (table_.at(now).g3_state != G3State::kCommitting) return false;  // another one's turn
  tier.commits.EndFreeing(remove.extents);
  g3_shares_.Take(table_.at(now).tenant, TotalBlocks(remove.extents).value());
  over_quota_ = over_capacity_ = true;  // perhaps: it may have shrunk meanwhile
  replaced_.Keep({remove.id, tier.number}, table_.at(now).tenant, std::move(remove.extents),
                 *remove.replaced);
  return true;
}

void Core::ReturnReplaced(ChunkSlot slot) {
  const std::optional<ReplacedAt> at = SurestOf(replaced_, table_.at(slot).id);
  // Of another shape: another put under this key.
  if (!at.has_value()) return;
  const ImageShape& shape = replaced_.Find(*at)->record.shape;
  Chunk& chunk = table_.at(slot);
  // A put of another shape took its place for good; a recall is no put. It has no space any more.
  if (chunk.recalled) {
    chunks_.NoteUnbacked(chunk);  // with the shape that it was counted with
    chunk.shape = shape;
  }
  if (shape != chunk.shape) return;
  // Not the bytes that they wait for.
  durable_waiters_.Fail(slot, absl::NotFoundError("the chunk was evicted before it was written"));
  BecomeReplaced(slot, *at);
}

void Core::LoseChunk(ChunkSlot slot) {
  const ChunkId id = table_.at(slot).id;
  chunks_.Detach(slot);
  const std::optional<ReplacedAt> at = SurestOf(replaced_, id);
  if (!at.has_value() || table_.full()) return ForgetReplaced(id);
  const ChunkSlot fresh = chunks_.Create(id, replaced_.Find(*at)->record.shape);
  KVKEEP_CHECK(fresh != kNoSlot);
  ++moves_;
  Change chunk(&chunks_, fresh);
  BecomeReplaced(fresh, *at);
}

void Core::BecomeReplaced(ChunkSlot slot, const ReplacedAt& at) {
  Chunk& chunk = table_.at(slot);
  events_.NoteTiers(chunk);  // of the device that it was on
  Replaced taken = replaced_.Take(at);
  DeviceTier& tier = *devices_[at.device];
  StoreBy(chunk, tier, std::move(taken.extents), taken.record);
  InsertIntoG3Policy(slot, kNoSlot, deps_.clock->Now());
  EndReplaced(chunk);
  DoubtTwice(slot);
  if (!chunk.unconfirmed) return;
  tier.confirms.Add(slot);
  PumpLater(tier);
}

void Core::DoubtTwice(ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  // Nobody's waits for the start after which its tenant is back.
  if (!HasPool(chunk.tenant)) return;
  if (DoubtedTwice(chunk)) scrubber_.AddInDoubt(slot);
}

// A sure record ends the others once it is stable. Where it is, and has not, a read tells which one
// is true (Contest).
bool Core::DoubtedTwice(const Chunk& chunk) const {
  const bool untold =
      chunk.doubtful || devices_[chunk.device]->syncs.IsStable(chunk.g3_sequence);
  return untold && replaced_.HasAny(chunk.id);
}

void Core::FreeWhenStable(DeviceTier& tier, CommitSequence sequence, ExtentList extents) {
  tier.syncs.Wait(sequence, [this, &tier, extents = std::move(extents),
                             frees = tier.frees](absl::Status) {
    // After a failed sync nothing is written to it any more: then it does not matter.
    Section section(&chunks_);
    tier.Free(extents);
    PumpWrites(tier);
  });
}

void Core::ForgetReplaced(const ChunkId& id) {
  while (const std::optional<ReplacedAt> at = replaced_.Next(id, 0)) {
    Count(work::kLook);
    ForgetOne(*at);
  }
}

void Core::ForgetOne(const ReplacedAt& at, bool evicted) {
  // Its blocks go as any other's when it is let go of.
  if (!replaced_.Find(at)->kept()) {
    RemoveRecord(*devices_[at.device], at.id);
    return replaced_.Drop(at);
  }
  PendingRemove remove = *TakeReplaced(at);
  remove.replaced = std::nullopt;
  remove.evicted = evicted;
  DeviceTier& tier = *devices_[at.device];
  tier.commits.Remove(std::move(remove));
  if (!tier.commits.under_way()) PumpLater(tier);
}

Evicted Core::EvictReplaced(DeviceTier& tier, std::optional<TenantId> tenant) {
  Count(work::kFind);
  const std::optional<ReplacedAt> at = replaced_.AnyKept(tier.number, tenant);
  if (!at.has_value()) return Evicted::kNone;
  ++counters_.g3_evictions;
  ++tenant_counters_[owners_.OwnerOf(at->id.ns).value()].g3_evictions;
  ForgetOne(*at, /*evicted=*/true);
  Count(work::kEvict);
  return Evicted::kOne;
}

}  // namespace kvkeep::store_internal
