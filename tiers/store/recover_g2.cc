// Start: what an earlier process left in an arena that outlived it. O(marks), and one MAC an image.
//
// Clients saw all of that memory and wrote the payloads in it, so it is not searched: only a block
// that is marked (live_marks.h) can begin an image. Its payload is not looked at here; the chunk is
// kUnverified until it is first wanted, or the sweep comes by (sweep.cc).
#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/store/core.h"
#include "tiers/store/guarded_header.h"

namespace kvkeep::store_internal {

struct Core::RecoveredImage {
  ChunkSlot slot;
  Generation generation;
};

void Core::RecoverG2() {
  std::vector<std::pair<Generation, ChunkSlot>> by_age;
  for (BlockNumber block(0); block.value() < marks_.size(); ++block) {
    if (marks_.at(block) == 0) continue;
    if (const std::optional<RecoveredImage> image = AdoptImage(block)) {
      by_age.emplace_back(image->generation, image->slot);
    } else {
      marks_.Clear(block);
      ++counters_.recovery_dropped_g2_chunks;
    }
  }
  counters_.recovered_g2_chunks = by_age.size();
  for (const auto& pool : pools_) pool->EndRecovery();
  // Recency as of the last placement. Generations go on from the highest one, so that the next
  // start can tell this process's images from older ones as well.
  std::sort(by_age.begin(), by_age.end());
  for (const auto& [generation, slot] : by_age) {
    Change chunk(&chunks_, slot);
    chunks_.InsertIntoPolicy(slot, kNoSlot);
    reuse_.OnFound(table_.fingerprint(chunk->id), chunk->blocks() * kBlockBytes);
    unverified_.push_back(slot);
  }
  if (!by_age.empty()) chunks_.BeginGenerationsAfter(by_age.back().first);
}

std::optional<Core::RecoveredImage> Core::AdoptImage(BlockNumber block) {
  const auto owner = std::find_if(pools_.begin(), pools_.end(),
                                  [block](const auto& pool) { return pool->Owns(block); });
  // Of no tenant any more; or not to be touched.
  if (owner == pools_.end() || !(*owner)->HasMemory(block)) return std::nullopt;
  const Extent first{block, BlockCount(1)};
  const absl::StatusOr<ImageHeader> header =
      DecodeGuarded(chunks_.HeaderInArena({first}), deps_.mac_key);  // also checks the MAC
  if (!header.ok()) return std::nullopt;
  const ImageIdentity& identity = header->identity;
  const ImagePlacement& placement = header->placement;
  const bool here = placement.tier == Tier::kG2 && placement.place == deps_.arena->uuid() &&
                    placement.extents[0].first == block &&
                    TotalBlocks(placement.extents) == identity.shape.blocks() &&
                    LiveMarks::Of(placement.incarnation, placement.generation) == marks_.at(block);
  if (!here) return std::nullopt;
  const TenantId tenant(static_cast<uint32_t>(owner - pools_.begin()));
  if (owners_.OwnerOf(identity.id.ns) != tenant) return std::nullopt;

  ChunkSlot slot = table_.Find(identity.id);
  if (slot != kNoSlot && table_.at(slot).has_g2_space()) return std::nullopt;
  if (slot == kNoSlot && table_.full()) return std::nullopt;
  if (!(*owner)->Claim(placement.extents).ok()) return std::nullopt;
  if (slot != kNoSlot && table_.at(slot).shape != identity.shape) {
    // Another put under this key: deleted before this one, and its removal had not reached the
    // index, or replaced by it.
    ReplaceChunk(slot);
    slot = kNoSlot;
  }
  if (slot == kNoSlot && table_.full()) {  // the detached one keeps its slot while it is removed
    (*owner)->Free(placement.extents);
    ForgetReplaced(identity.id);
    return std::nullopt;
  }
  if (slot == kNoSlot) slot = chunks_.Create(identity.id, identity.shape);
  Change chunk(&chunks_, slot);
  chunk->g2 = placement.extents;
  chunks_.SetG2State(*chunk, G2State::kUnverified);
  return RecoveredImage{slot, placement.generation};
}

}  // namespace kvkeep::store_internal
