// The sweep: chunks that an earlier process left in G2 are verified in the background, before
// anybody wants them; and what lies on memory that broke is forgotten.
#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/store/core.h"

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

// What was found whole before its memory broke is forgotten. What is not resident is checked before
// it is served, and found out then: also by the sweep.
void Core::DropBrokenAndSweep(Section& section) {
  chunks_.WithholdBroken();
  for (size_t p = 0; p < pools_.size(); ++p) {
    for (const BlockNumber block : pools_[p]->TakeBroken()) {
      uint64_t moves = 0;
      do {  // again when a chunk changed its slot meanwhile: it may have been passed by
        moves = moves_;
        for (uint32_t i = 0; i < table_.slot_end(); ++i) {
          section.YieldIfSpent();
          Count(work::kLook);
          const Chunk& chunk = table_.at(ChunkSlot(i));
          if (!chunk.live || chunk.detached || !chunk.resident()) continue;
          if (!LiesOn(chunk.g2, block)) continue;
          ++counters_.corrupt_chunks;
          DetachChunk(ChunkSlot(i));
        }
      } while (moves != moves_);
    }
  }
  sweep_budget_bytes_ = kSweepBytesPerTick;
  SweepNext();
}

// One at a time, the most recent first: the oldest may be evicted before they are ever read.
void Core::SweepNext() {
  while (sweeping_ == kNoSlot && !unverified_.empty() && sweep_budget_bytes_ > 0 && !draining_) {
    if (Spent()) return;  // the next Tick goes on: many may be gone already
    Count(work::kFind);
    const ChunkSlot slot = unverified_.back();
    const Chunk& chunk = table_.at(slot);
    if (chunk.live && chunk.g2_state == G2State::kUnverified) {
      // Only verified ones become dirty: it waits until the budget has room for it, and while a
      // device joins, which may have it.
      const bool to_be_written = chunk.g3_state == G3State::kAbsent && !devices_.empty();
      if (to_be_written && (AnyJoins() || !pool(chunk).MayBeDirty(chunk.blocks()))) return;
      sweep_budget_bytes_ -= std::min(sweep_budget_bytes_, chunk.blocks() * kBlockBytes);
      sweeping_ = slot;
      filler_.Verify(slot);
    }
    unverified_.pop_back();
  }
}

void Core::OnVerified(ChunkSlot slot) {
  if (sweeping_ != slot) return;
  sweeping_ = kNoSlot;
  SweepNext();
}

}  // namespace kvkeep::store_internal
