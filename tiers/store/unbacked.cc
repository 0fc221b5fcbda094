// What G2 alone holds although G3 is to have it: it came when the dirty budget was used up, or no
// device took writes. It waits for its turn, evictable as ever, so that a flood pushes out nothing
// that is hot; and it is offered to G3, by the admission as any other, when there is room again.
#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

void Core::WaitUnbacked(ChunkSlot slot, ChunkSlot parent) {
  const Chunk& chunk = table_.at(slot);
  KVKEEP_CHECK(chunk.resident() && chunk.g3_state == G3State::kAbsent);
  if (draining_ || chunk.waits_unbacked) return;
  pool(chunk).unbacked.Push(table_, slot, parent);
}

// It was queued, and no device takes writes now.
void Core::WaitAgain(ChunkSlot slot, const std::optional<ChunkKey>& parent) {
  const Chunk& chunk = table_.at(slot);
  if (chunk.detached || !chunk.resident()) return;
  write_backs_.NoteNotTaken(deps_.clock->Now());
  WaitUnbacked(slot, table_.FindParent(chunk, parent));
}

DeviceTier* Core::EnqueueUnbacked(ChunkSlot slot) {
  const ChunkSlot near = chunks_.EndUnbackedWait(slot);
  const Chunk& chunk = table_.at(slot);
  std::optional<ChunkKey> parent;
  if (near != kNoSlot) {
    const Chunk& there = table_.at(near);
    const bool same = there.id.ns == chunk.id.ns && there.id.part == chunk.id.part;
    if (there.live && !there.detached && same) parent = there.id.key;
  }
  Count(work::kRecord);
  return EnqueueWriteBack(slot, parent, false);
}

void Core::PumpUnbacked(DeviceTier& tier) {
  if (!write_backs_.MayOffer(deps_.clock->Now())) return;  // Tick comes back to it
  for (const auto& own : pools_) {
    // It ends: EnqueueUnbacked takes the first one out, and puts one back only over the budget or
    // where no device takes writes; both were just asked.
    while (own->unbacked.first() != kNoSlot) {
      const ChunkSlot slot = own->unbacked.first();
      if (!own->MayBeDirty(table_.at(slot).blocks())) break;
      const bool any_takes = std::any_of(
          devices_.begin(), devices_.end(), [](const auto& tier) {
            return tier->writable() && !tier->device->index_over_budget();
          });
      if (!any_takes) return;
      if (Spent()) return PumpLater(tier);
      if (DeviceTier* const to = EnqueueUnbacked(slot); to != nullptr) PumpLater(*to);
    }
  }
}

// All of it, whatever the budget: whoever stops keeps it in G3. What could not be written beyond
// the node is offered there once more.
void Core::BeginDrain(bool write_remote) {
  Section section(&chunks_);
  draining_ = true;
  if (remote_ != nullptr) {
    recaller_->BeginDrain();
    beyond_->BeginDrain(section, write_remote);
  }
  for (const auto& own : pools_) {
    while (own->unbacked.first() != kNoSlot) {
      DeviceTier* const to = EnqueueUnbacked(own->unbacked.first());
      if (to != nullptr) PumpLater(*to);
      section.YieldIfSpent();
    }
  }
}

// Who waits is in its tenant's queue, and all that G2 alone holds is counted.
void Core::CheckUnbacked() {
  std::vector<uint64_t> waiting(pools_.size()), waiting_blocks(waiting), chunks(waiting),
      blocks(waiting);
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    const Chunk& chunk = table_.at(ChunkSlot(i));
    if (!chunk.live || !HasPool(chunk.tenant)) continue;
    const bool unbacked = !devices_.empty() && !chunk.detached && chunk.in_g2() &&
                          chunk.g3_state == G3State::kAbsent;
    KVKEEP_CHECK(unbacked == chunk.noted_unbacked);
    KVKEEP_CHECK(!chunk.waits_unbacked || (unbacked && chunk.resident()));
    KVKEEP_CHECK(chunk.waits_unbacked == pool(chunk).unbacked.Has(ChunkSlot(i)));
    waiting[chunk.tenant.value()] += chunk.waits_unbacked;
    waiting_blocks[chunk.tenant.value()] += chunk.waits_unbacked ? chunk.blocks() : 0;
    chunks[chunk.tenant.value()] += unbacked;
    blocks[chunk.tenant.value()] += unbacked ? chunk.blocks() : 0;
  }
  for (size_t t = 0; t < pools_.size(); ++t) {
    const G2Pool& own = *pools_[t];
    KVKEEP_CHECK(own.unbacked_chunks == chunks[t] && own.unbacked_blocks == blocks[t]);
    KVKEEP_CHECK(waiting[t] == own.unbacked.chunks());
    KVKEEP_CHECK(waiting_blocks[t] == own.unbacked.blocks());
  }
}

}  // namespace kvkeep::store_internal
