// Chunks that an earlier process left in G2: their bytes are checked before they are first served.
//
// A verification is a promotion without reads: the same single flight, waiters and readiness piece
// by piece, the bytes where they are. It starts with the first pin; a sweep does the rest in the
// background, and hands to write-back what is not in G3.
#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/store/core.h"
#include "tiers/store/guarded_header.h"

namespace kvkeep::store_internal {
namespace {

// Of the sweep, between two ticks: 2.5 GB/s at most, so that it leaves the copy pool to the rest.
constexpr uint64_t kSweepBytesPerTick = 256 * kMiB;

// Blocks that the kernel gave up on: their pools give them out no more.
void WithholdBroken(Arena& arena, const std::vector<std::unique_ptr<G2Pool>>& pools) {
  for (const BlockNumber block : arena.TakeBrokenBlocks()) {
    for (const auto& pool : pools) {
      if (pool->Owns(block)) pool->Withhold(block);
    }
  }
}

bool LiesOn(const ExtentList& extents, BlockNumber block) {
  return std::any_of(extents.begin(), extents.end(), [block](const Extent& extent) {
    return extent.first <= block && block.value() < extent.end();
  });
}

}  // namespace

void Core::StartVerification(ChunkSlot slot) {
  Change chunk(&chunks_, slot);
  KVKEEP_CHECK(chunk->g2_state == G2State::kUnverified);
  auto promotion = Promotion::InPlace(slot, chunk->shape, chunk->g2);
  KVKEEP_CHECK(promotions_.emplace(slot, std::move(promotion)).second);
  chunks_.SetG2State(*chunk, G2State::kVerifying);
  Later([this, slot, extents = chunk->g2] {
    deps_.copy_executor->Post([this, slot, extents] {
      OnArenaHeaderRead(slot, DecodeGuarded(chunks_.HeaderInArena(extents), deps_.mac_key));
    });
  });
}

void Core::OnArenaHeaderRead(ChunkSlot slot, absl::StatusOr<ImageHeader> header) {
  Promotion* promotion = nullptr;
  {
    Section section(&chunks_);
    promotion = promotions_.at(slot).get();
    const Chunk& chunk = table_.at(slot);
    KVKEEP_CHECK(chunk.g2_state == G2State::kVerifying);
    const bool same = header.ok() && header->identity.id == chunk.id &&
                      header->identity.shape == chunk.shape &&
                      header->placement.tier == Tier::kG2 && !header->encryption &&
                      header->placement.place == deps_.arena->uuid() &&
                      header->placement.extents == chunk.g2.list();
    if (header.ok() && !same) {
      header = absl::DataLossError("the image in memory is of another chunk");
    }
  }
  GoOn(*promotion,
       header.ok()
           ? promotion->OnHeader(std::make_unique<ImageHeader>(*std::move(header)), nullptr)
           : promotion->OnHeaderFailed(absl::DataLossError(header.status().message()), false));
}

void Core::FinishVerification(const Promotion& promotion, Promotion::Next end) {
  Section section(&chunks_);
  TellFirst(std::move(end.told), std::move(end.status));
  const ChunkSlot slot = promotion.slot();
  KVKEEP_CHECK(promotions_.erase(slot) == 1);
  {
    Change chunk(&chunks_, slot);
    chunks_.SetG2State(*chunk, G2State::kResident);
    pool(*chunk).LookAgain(chunk->g2);
  }
  WriteBackIfUnbacked(slot);
  SweepOn(slot);
}

// It has become resident, and G3 may not have it. Who waits for it to be durable waited for this.
void Core::WriteBackIfUnbacked(ChunkSlot slot) {
  const Chunk& chunk = table_.at(slot);
  if (!chunk.live || chunk.detached || chunk.g3_state != G3State::kAbsent) return;
  if (!draining_) QueueWriteBack(slot, std::nullopt, durable_waiters_.Has(slot));
  if (!chunk.dirty()) WaitForDevice(slot);
}

// It was recalled. It is there to be recalled again, so a drive is worn for it once it is used here
// again: a lookup offers it then, as what its admission did not want.
void Core::LeaveToNextUse(ChunkSlot slot) {
  Chunk& chunk = table_.at(slot);
  if (durable_waiters_.Has(slot)) return WriteBackIfUnbacked(slot);
  if (devices_.empty() || chunk.detached || chunk.g3_state != G3State::kAbsent) return;
  chunk.unadmitted = true;
  ++remote_->counters.recalled_unwritten;
}

void Core::EndFailedVerification(const Promotion& promotion, Promotion::Next end) {
  Section section(&chunks_);
  TellFirst(std::move(end.told), std::move(end.status));
  const ChunkSlot slot = promotion.slot();
  WithholdBroken(*deps_.arena, pools_);  // before its blocks are free
  KVKEEP_CHECK(promotions_.erase(slot) == 1);
  ++counters_.corrupt_chunks;
  {
    Change chunk(&chunks_, slot);
    chunks_.SetG2State(*chunk, G2State::kFailed);
    if (!chunk->detached && chunk->g3_state == G3State::kStored && chunk->pins == 0) {
      chunks_.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kRemoved);
    }
  }
  const Chunk& chunk = table_.at(slot);
  if (chunk.live && !chunk.detached && chunk.has_g2_space()) {
    if (chunk.g3_state == G3State::kStored) {
      LeaveToReaders(slot);
    } else {
      LoseChunk(slot);
    }
  }
  SweepOn(slot);
}

// The copy in G3 gets a chunk of its own: new readers find it at once, while those of the damaged
// copy let go of that when they like.
void Core::LeaveToReaders(ChunkSlot slot) {
  Chunk& old = table_.at(slot);
  // It has no record of its own; one that joined meanwhile may be kept beneath it.
  if (old.g3_state != G3State::kStored) return LoseChunk(slot);
  if (old.g3_reading || old.unconfirmed || table_.full()) return DetachChunk(slot);
  // The record only changes its slot: device, share and what is kept beneath (by id) count it as
  // before, so neither TakeOff nor StoreBy, which count. The old slot loses it before it is
  // detached: else its last reader would free the blocks (Settle).
  Chunk copy = old;
  {
    Change change(&chunks_, slot);
    if (old.in_g3_policy) g3_policy(old).OnErase(slot, EvictionPolicy::EraseReason::kRemoved);
    old.in_g3_policy = false;
    old.g3.clear();
    old.doubtful = false;
    SetG3State(old, G3State::kAbsent);
  }
  chunks_.Detach(slot);
  const ChunkSlot fresh = chunks_.Create(copy.id, copy.shape);
  KVKEEP_CHECK(fresh != kNoSlot);
  ++moves_;
  Change change(&chunks_, fresh);
  change->g3 = std::move(copy.g3);
  change->g3_incarnation = copy.g3_incarnation;
  change->g3_generation = copy.g3_generation;
  change->g3_sequence = copy.g3_sequence;
  change->device = copy.device;
  change->doubtful = copy.doubtful;
  SetG3State(*change, G3State::kStored);
  InsertIntoG3Policy(fresh, kNoSlot, deps_.clock->Now());
  DoubtTwice(fresh);
}

// What was found whole before its memory broke is forgotten. What is not resident is checked before
// it is served, and found out then: also by the sweep.
void Core::DropBrokenAndSweep(Section& section) {
  WithholdBroken(*deps_.arena, pools_);
  for (size_t p = 0; p < pools_.size(); ++p) {
    for (const BlockNumber block : pools_[p]->TakeBroken()) {
      uint64_t moves = 0;
      do {  // again when a chunk changed its slot meanwhile: it may have been passed by
        moves = moves_;
        for (uint32_t i = 0; i < table_.slot_end(); ++i) {
          section.YieldIfSpent();
          Count(work::kLook);
          const Chunk& chunk = table_.at(ChunkSlot(i));
          if (!chunk.live || chunk.detached || chunk.g2_state != G2State::kResident) continue;
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
      StartVerification(slot);
    }
    unverified_.pop_back();
  }
}

void Core::SweepOn(ChunkSlot ended) {
  if (sweeping_ != ended) return;
  sweeping_ = kNoSlot;
  SweepNext();
}

}  // namespace kvkeep::store_internal
