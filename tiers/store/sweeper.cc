#include "tiers/store/sweeper.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/change.h"
#include "tiers/store/guarded_header.h"

namespace kvkeep::store_internal {
namespace {

// What the sweep checks between two ticks: 2.5 GB/s at most, so that it leaves the copy pool to the
// rest.
constexpr uint64_t kSweepBytesPerTick = 256 * kMiB;

bool LiesOn(const ExtentList& extents, BlockNumber block) {
  return std::any_of(extents.begin(), extents.end(), [block](const Extent& extent) {
    return extent.first <= block && block.value() < extent.end();
  });
}

}  // namespace

Sweeper::Sweeper(const StoreDeps& deps, Chunks* chunks, DeviceTiers* tiers, Records* records,
                 Filler* filler, const Owners* owners, ReuseMeter* reuse)
    : deps_(deps),
      chunks_(*chunks),
      tiers_(*tiers),
      records_(*records),
      filler_(*filler),
      owners_(*owners),
      reuse_(*reuse) {}

// ---- the start

struct Sweeper::RecoveredImage {
  ChunkSlot slot;
  Generation generation;
};

void Sweeper::Recover() {
  std::vector<std::pair<Generation, ChunkSlot>> by_age;
  for (BlockNumber block(0); block.value() < chunks_.marks.size(); ++block) {
    if (chunks_.marks.at(block) == 0) continue;
    if (const std::optional<RecoveredImage> image = AdoptImage(block)) {
      by_age.emplace_back(image->generation, image->slot);
    } else {
      chunks_.marks.Clear(block);
      ++chunks_.counters.recovery_dropped_g2_chunks;
    }
  }
  chunks_.counters.recovered_g2_chunks = by_age.size();
  for (const auto& pool : chunks_.pools) pool->EndRecovery();
  // Recency as of the last placement. Generations go on from the highest one, so that the next
  // start can tell this process's images from older ones as well.
  std::sort(by_age.begin(), by_age.end());
  for (const auto& [generation, slot] : by_age) {
    Change chunk(&chunks_, slot);
    chunks_.InsertIntoPolicy(slot, kNoSlot);
    reuse_.OnFound(chunks_.table.fingerprint(chunk->id), chunk->blocks() * kBlockBytes);
    unverified_.push_back(slot);
  }
  if (!by_age.empty()) chunks_.BeginGenerationsAfter(by_age.back().first);
}

std::optional<Sweeper::RecoveredImage> Sweeper::AdoptImage(BlockNumber block) {
  const auto owner = std::find_if(chunks_.pools.begin(), chunks_.pools.end(),
                                  [block](const auto& pool) { return pool->Owns(block); });
  // No tenant has the block any more, or it is not to be touched.
  if (owner == chunks_.pools.end() || !(*owner)->HasMemory(block)) return std::nullopt;
  const Extent first{block, BlockCount(1)};
  const absl::StatusOr<ImageHeader> header =
      DecodeGuarded(chunks_.HeaderInArena({first}), deps_.mac_key);  // also checks the MAC
  if (!header.ok()) return std::nullopt;
  const ImageIdentity& identity = header->identity;
  const ImagePlacement& placement = header->placement;
  const bool here =
      placement.tier == Tier::kG2 && placement.place == deps_.arena->uuid() &&
      placement.extents[0].first == block &&
      TotalBlocks(placement.extents) == identity.shape.blocks() &&
      LiveMarks::Of(placement.incarnation, placement.generation) == chunks_.marks.at(block);
  if (!here) return std::nullopt;
  const TenantId tenant(static_cast<uint32_t>(owner - chunks_.pools.begin()));
  if (owners_.OwnerOf(identity.id.ns) != tenant) return std::nullopt;

  ChunkSlot slot = chunks_.table.Find(identity.id);
  if (slot != kNoSlot && chunks_.table.at(slot).has_g2_space()) return std::nullopt;
  if (slot == kNoSlot && chunks_.table.full()) return std::nullopt;
  if (!(*owner)->Claim(placement.extents).ok()) return std::nullopt;
  if (slot != kNoSlot && chunks_.table.at(slot).shape != identity.shape) {
    // Another put under this key: deleted before this one, and its removal had not reached the
    // index, or replaced by it.
    records_.Replace(slot);
    slot = kNoSlot;
  }
  // The detached one keeps its slot while it is removed.
  if (slot == kNoSlot && chunks_.table.full()) {
    (*owner)->Free(placement.extents);
    records_.Forget(identity.id);
    return std::nullopt;
  }
  if (slot == kNoSlot) slot = chunks_.Create(identity.id, identity.shape);
  Change chunk(&chunks_, slot);
  chunks_.GiveCopy(*chunk, tenant, placement.extents, G2State::kUnverified);
  return RecoveredImage{slot, placement.generation};
}

void Sweeper::ForgetOldest(size_t* next) {
  while (*next < unverified_.size()) {
    const ChunkSlot slot = unverified_[(*next)++];
    chunks_.Count(work::kFind);
    const Chunk& at = chunks_.table.at(slot);
    const bool alone = at.g3_state == G3State::kAbsent && !records_.kept().HasAny(at.id);
    if (!at.live || at.g2_state != G2State::kUnverified || !alone) continue;
    ++chunks_.counters.recovery_dropped_g2_chunks;
    Change chunk(&chunks_, slot);
    return chunks_.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kEvicted);
  }
}

// ---- the sweep

// What was found whole before its memory broke is forgotten. What is not resident is checked before
// it is served, and found out then: also by the sweep.
void Sweeper::Tick(Section& section) {
  chunks_.WithholdBroken();
  for (size_t p = 0; p < chunks_.pools.size(); ++p) {
    for (const BlockNumber block : chunks_.pools[p]->TakeBroken()) {
      uint64_t moves = 0;
      do {  // again when a chunk changed its slot meanwhile: it may have been passed by
        moves = chunks_.moves;
        for (uint32_t i = 0; i < chunks_.table.slot_end(); ++i) {
          section.YieldIfSpent();
          chunks_.Count(work::kLook);
          const Chunk& chunk = chunks_.table.at(ChunkSlot(i));
          if (!chunk.live || chunk.detached || !chunk.resident()) continue;
          if (!LiesOn(chunk.g2, block)) continue;
          ++chunks_.counters.corrupt_chunks;
          records_.Detach(ChunkSlot(i));
        }
      } while (moves != chunks_.moves);
    }
  }
  budget_bytes_ = kSweepBytesPerTick;
  GoOn();
}

// One at a time, the most recent first: the oldest may be evicted before they are ever read.
void Sweeper::GoOn() {
  while (sweeping_ == kNoSlot && !unverified_.empty() && budget_bytes_ > 0 && !chunks_.draining) {
    if (chunks_.Spent()) return;  // the next Tick goes on: many may be gone already
    chunks_.Count(work::kFind);
    const ChunkSlot slot = unverified_.back();
    const Chunk& chunk = chunks_.table.at(slot);
    if (chunk.live && chunk.g2_state == G2State::kUnverified) {
      // Only verified ones become dirty: it waits until the budget has room for it, and while a
      // device joins, which may have it.
      const bool to_be_written = chunk.g3_state == G3State::kAbsent && !tiers_.empty();
      const bool may_be_written =
          !tiers_.AnyJoins() && chunks_.pool(chunk).MayBeDirty(chunk.blocks());
      if (to_be_written && !may_be_written) return;
      budget_bytes_ -= std::min(budget_bytes_, chunk.blocks() * kBlockBytes);
      sweeping_ = slot;
      filler_.Verify(slot);
    }
    unverified_.pop_back();
  }
}

void Sweeper::OnVerified(ChunkSlot slot) {
  if (sweeping_ != slot) return;
  sweeping_ = kNoSlot;
  GoOn();
}

}  // namespace kvkeep::store_internal
