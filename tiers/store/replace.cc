// A chunk put anew while its record is in doubt, or its device out of reach. The record may be all
// that keeps a promise: what was put durable, and is put once more, has to outlive the loss of
// power at every moment of the second put. So it stays, and its image with it, until the new
// chunk's record has overwritten it and that is on stable storage; or until the new chunk is
// deleted, as it would then have been itself; or until its space is wanted, and no chunk can be
// evicted for it. Is the new chunk evicted from G2 and nowhere else, it is what it was: in G3.
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

void Core::ReplaceChunk(ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  if (chunk.g3_state == G3State::kStored) {
    ForgetReplaced(chunk.id);  // on another device, and older
    replaced_[chunk.id] = {.device = chunk.device, .holder = slot, .extents = {}};
  }
  DetachOnly(slot);
}

bool Core::KeepReplaced(Chunk& chunk, ChunkSlot slot) {
  const auto found = replaced_.find(chunk.id);
  if (found == replaced_.end() || found->second.holder != slot) return false;
  found->second.holder = kNoSlot;
  found->second.extents = std::move(chunk.g3);
  found->second.record = {chunk.shape,       chunk.g3_incarnation, chunk.g3_generation,
                          chunk.g3_sequence, chunk.unconfirmed,    chunk.doubtful};
  const ChunkSlot now = table_.Find(chunk.id);
  if (now != kNoSlot && table_.at(now).g3_state == G3State::kStored) EndReplaced(table_.at(now));
  return true;
}

bool Core::TakeReplaced(uint16_t device, const ChunkId& id,
                        std::deque<DeviceTier::PendingRemove>& removes) {
  const auto found = replaced_.find(id);
  if (found == replaced_.end() || found->second.device != device) return false;
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
  const auto found = replaced_.find(chunk.id);
  if (found == replaced_.end()) return;
  if (found->second.device != chunk.device) return EndWhenStable(chunk);
  if (found->second.holder != kNoSlot) {  // its removal finds the new record
    replaced_.erase(found);
    return;
  }
  DeviceTier& tier = *devices_[chunk.device];
  TakeReplaced(chunk.device, chunk.id, tier.removes);
  if (!tier.committing) PumpLater(chunk.device);
}

void Core::EndWhenStable(const Chunk& chunk) {
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
  if (!remove.replaced.has_value() || now == kNoSlot || replaced_.contains(remove.id)) return false;
  if (table_.at(now).g3_state != G3State::kCommitting) return false;  // another one's turn
  const uint64_t blocks = TotalBlocks(remove.extents).value();
  devices_[device]->freeing_blocks -= blocks;
  g3_shares_.Take(table_.at(now).tenant, blocks);
  over_quota_ = over_capacity_ = true;  // perhaps: it may have shrunk meanwhile
  replaced_[remove.id] = {device, kNoSlot, std::move(remove.extents), *remove.replaced};
  return true;
}

void Core::ReturnReplaced(ChunkSlot slot) {
  Chunk& chunk = table_.at(slot);
  const auto found = replaced_.find(chunk.id);
  if (found == replaced_.end()) return;
  // Else another put under this key, or not let go of by its readers.
  if (found->second.holder != kNoSlot || found->second.record.shape != chunk.shape) return;
  Replaced replaced = std::move(found->second);
  replaced_.erase(found);
  DeviceTier& tier = *devices_[replaced.device];
  chunk.g3 = std::move(replaced.extents);
  chunk.device = replaced.device;
  chunk.g3_incarnation = replaced.record.incarnation;
  chunk.g3_generation = replaced.record.generation;
  chunk.g3_sequence = replaced.record.sequence;
  chunk.doubtful = replaced.record.doubtful;
  chunk.unconfirmed = replaced.record.unconfirmed;
  SetG3State(chunk, G3State::kStored);
  ++tier.chunks;
  InsertIntoG3Policy(slot, kNoSlot);
  if (!chunk.unconfirmed) return;
  tier.confirm_queue.push_back({slot});
  PumpLater(replaced.device);
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
  const auto found = replaced_.find(id);
  if (found == replaced_.end()) return;
  Replaced replaced = std::move(found->second);
  replaced_.erase(found);
  if (replaced.holder != kNoSlot) return;  // goes as any other when it is let go of
  DeviceTier& tier = *devices_[replaced.device];
  const uint64_t blocks = TotalBlocks(replaced.extents).value();
  tier.freeing_blocks += blocks;
  g3_shares_.Give(OwnerOf(id.ns), blocks);
  tier.removes.push_back({id, std::move(replaced.extents)});
  if (!tier.committing) PumpLater(replaced.device);
}

Core::Evicted Core::EvictReplaced(DeviceTier& tier, std::optional<TenantId> tenant) {
  for (const auto& [id, replaced] : replaced_) {
    Count(work::kLook);
    if (replaced.holder != kNoSlot || devices_[replaced.device].get() != &tier) continue;
    if (tenant.has_value() && OwnerOf(id.ns) != *tenant) continue;
    ForgetReplaced(ChunkId(id));
    Count(work::kEvict);
    return Evicted::kOne;
  }
  return Evicted::kNone;
}

}  // namespace kvkeep::store_internal
