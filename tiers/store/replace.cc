// What a chunk's record is beside others of it: the chunk put anew, and the chunk that two devices
// know.
//
// A chunk put anew while its record is in doubt, or its device out of reach. The record may be all
// that keeps a promise: what was put durable, and is put once more, has to outlive the loss of
// power at every moment of the second put. So it stays, and its image with it, until the new
// chunk's record has overwritten it and that is on stable storage; or until the new chunk is
// deleted, as it would then have been itself; or until its space is wanted, and no chunk can be
// evicted for it. Is the new chunk evicted from G2 and nowhere else, or found damaged, it is what
// it was: in G3.
//
// A power cut in between leaves two records on two devices, and neither is sure: the new one's
// data may not have arrived, the old one's may be overwritten. One is taken for the chunk, the
// other one stays in the same way until every byte of the first was read and is right (scrub.cc
// sees to it), and takes its place when it is not.
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

// That is no chunk's any more; one without a doubt, if there is one.
std::optional<ReplacedAt> SurestOf(const ReplacedRecords& records, const ChunkId& id) {
  std::optional<ReplacedAt> surest;
  bool sure = false;
  for (auto at = records.lower_bound({id, 0}); at != records.end() && at->first.id == id; ++at) {
    if (at->second.holder != kNoSlot || sure) continue;
    surest = at->first;
    sure = !at->second.record.doubtful;
  }
  return surest;
}

}  // namespace

void Core::ReplaceChunk(ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  if (chunk.g3_state == G3State::kStored) {
    replaced_[{chunk.id, chunk.device}] = {.holder = slot, .extents = {}};
  }
  DetachOnly(slot);
}

bool Core::KeepReplaced(Chunk& chunk, ChunkSlot slot) {
  const auto found = replaced_.find({chunk.id, chunk.device});
  if (found == replaced_.end() || found->second.holder != slot) return false;
  found->second.holder = kNoSlot;
  found->second.extents = std::move(chunk.g3);
  found->second.record = {chunk.shape,       chunk.g3_incarnation, chunk.g3_generation,
                          chunk.g3_sequence, chunk.unconfirmed,    chunk.doubtful};
  const ChunkSlot now = table_.Find(chunk.id);
  if (now != kNoSlot && table_.at(now).g3_state == G3State::kStored) EndReplaced(table_.at(now));
  return true;
}

bool Core::KeepBoth(uint16_t device, const IndexRecord& record, const KnownRecord& known) {
  const ChunkSlot slot = table_.Find(record.id);
  if (slot == kNoSlot || !known.doubtful || !table_.at(slot).doubtful) return false;
  const BlockCount blocks = TotalBlocks(record.extents);
  if (blocks != record.shape.blocks()) return false;
  if (!devices_[device]->allocator->Claim(record.extents).ok()) return false;
  g3_shares_.Take(table_.at(slot).tenant, blocks.value());
  replaced_[{record.id, device}] = {kNoSlot, record.extents, known};
  // Nobody's wait for the start after which their tenant is back.
  if (HasPool(table_.at(slot).tenant)) scrub_.in_doubt.push_back(slot);
  return true;
}

bool Core::TakeReplaced(uint16_t device, const ChunkId& id,
                        std::deque<DeviceTier::PendingRemove>& removes) {
  const auto found = replaced_.find({id, device});
  if (found == replaced_.end()) return false;
  // Else it goes when it is let go of.
  if (found->second.holder != kNoSlot) return true;
  const uint64_t blocks = TotalBlocks(found->second.extents).value();
  devices_[device]->freeing_blocks += blocks;
  g3_shares_.Give(OwnerOf(id.ns), blocks);
  removes.push_back({id, std::move(found->second.extents), found->second.record});
  replaced_.erase(found);
  return true;
}

void Core::EndReplaced(const Chunk& chunk) {
  const auto here = replaced_.find({chunk.id, chunk.device});
  if (here != replaced_.end() && here->second.holder != kNoSlot) {
    replaced_.erase(here);  // its removal finds the new record
  } else if (here != replaced_.end()) {
    DeviceTier& tier = *devices_[chunk.device];
    TakeReplaced(chunk.device, chunk.id, tier.removes);
    if (!tier.committing) PumpLater(chunk.device);
  }
  if (chunk.doubtful || !HasRecordOf(replaced_, chunk.id)) return;
  // On other devices: once it is on stable storage here.
  devices_[chunk.device]->sync_waiters.emplace(
      chunk.g3_sequence, [this, id = chunk.id, device = chunk.device,
                          sequence = chunk.g3_sequence](absl::Status status) {
        Section section(this);
        const ChunkSlot now = table_.Find(id);
        const bool stays = now != kNoSlot && table_.at(now).g3_state == G3State::kStored &&
                           table_.at(now).device == device &&
                           table_.at(now).g3_sequence == sequence;
        if (status.ok() && stays) ForgetReplaced(id);
      });
}

bool Core::RestoreReplaced(uint16_t device, DeviceTier::PendingRemove& remove) {
  const ChunkSlot now = table_.Find(remove.id);
  if (!remove.replaced.has_value() || now == kNoSlot) return false;
  if (replaced_.contains({remove.id, device})) return false;
  if (table_.at(now).g3_state != G3State::kCommitting) return false;  // another one's turn
  const uint64_t blocks = TotalBlocks(remove.extents).value();
  devices_[device]->freeing_blocks -= blocks;
  g3_shares_.Take(table_.at(now).tenant, blocks);
  over_quota_ = over_capacity_ = true;  // perhaps: it may have shrunk meanwhile
  replaced_[{remove.id, device}] = {kNoSlot, std::move(remove.extents), *remove.replaced};
  return true;
}

void Core::ReturnReplaced(ChunkSlot slot) {
  const std::optional<ReplacedAt> at = SurestOf(replaced_, table_.at(slot).id);
  // Of another shape: another put under this key.
  if (at.has_value() && replaced_.at(*at).record.shape == table_.at(slot).shape) {
    BecomeReplaced(slot, *at);
  }
}

void Core::LoseChunk(ChunkSlot slot) {
  const ChunkId id = table_.at(slot).id;
  DetachOnly(slot);
  const std::optional<ReplacedAt> at = SurestOf(replaced_, id);
  if (!at.has_value() || table_.full()) return ForgetReplaced(id);
  const ChunkSlot fresh = CreateChunk(id, replaced_.at(*at).record.shape);
  ++moves_;
  Change chunk(this, fresh);
  BecomeReplaced(fresh, *at);
}

void Core::BecomeReplaced(ChunkSlot slot, const ReplacedAt& at) {
  Chunk& chunk = table_.at(slot);
  const auto found = replaced_.find(at);
  DeviceTier& tier = *devices_[at.device];
  chunk.g3 = std::move(found->second.extents);
  chunk.device = at.device;
  const KnownRecord record = found->second.record;
  replaced_.erase(found);
  chunk.g3_incarnation = record.incarnation;
  chunk.g3_generation = record.generation;
  chunk.g3_sequence = record.sequence;
  chunk.doubtful = record.doubtful;
  chunk.unconfirmed = record.unconfirmed;
  SetG3State(chunk, G3State::kStored);
  ++tier.chunks;
  InsertIntoG3Policy(slot, kNoSlot);
  EndReplaced(chunk);
  if (!chunk.unconfirmed) return;
  tier.confirm_queue.push_back({slot});
  PumpLater(at.device);
}

void Core::FreeWhenStable(uint16_t device, CommitSequence sequence, ExtentList extents) {
  DeviceTier& tier = *devices_[device];
  tier.sync_waiters.emplace(sequence, [this, device, extents = std::move(extents)](absl::Status) {
    // After a failed sync nothing is written to it any more: then it does not matter.
    Section section(this);
    DeviceTier& of = *devices_[device];
    of.freeing_blocks -= TotalBlocks(extents).value();
    of.allocator->Free(extents);
    PumpWrites(device);
  });
}

void Core::ForgetReplaced(const ChunkId& id) {
  auto at = replaced_.lower_bound({id, 0});
  while (at != replaced_.end() && at->first.id == id) {
    Count(work::kLook);
    at = ForgetOne(at);
  }
}

ReplacedRecords::iterator Core::ForgetOne(ReplacedRecords::iterator at) {
  const ReplacedAt where = at->first;
  Replaced replaced = std::move(at->second);
  const auto next = replaced_.erase(at);
  if (replaced.holder != kNoSlot) return next;  // goes as any other when it is let go of
  DeviceTier& tier = *devices_[where.device];
  const uint64_t blocks = TotalBlocks(replaced.extents).value();
  tier.freeing_blocks += blocks;
  g3_shares_.Give(OwnerOf(where.id.ns), blocks);
  tier.removes.push_back({where.id, std::move(replaced.extents)});
  if (!tier.committing) PumpLater(where.device);
  return next;
}

Core::Evicted Core::EvictReplaced(DeviceTier& tier, std::optional<TenantId> tenant) {
  for (auto at = replaced_.begin(); at != replaced_.end(); ++at) {
    Count(work::kLook);
    const auto& [where, replaced] = *at;
    if (replaced.holder != kNoSlot || devices_[where.device].get() != &tier) continue;
    if (tenant.has_value() && OwnerOf(where.id.ns) != *tenant) continue;
    ForgetOne(at);
    Count(work::kEvict);
    return Evicted::kOne;
  }
  return Evicted::kNone;
}

}  // namespace kvkeep::store_internal
