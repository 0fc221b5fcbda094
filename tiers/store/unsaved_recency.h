// UnsavedRecency: the chunks of one device whose recency is to be saved, and the numbers to save.
//
// It remembers the slots of chunks that were touched or stored since the last save, up to a limit.
// Above the limit, and after a save that failed, the next save looks at all chunks. It writes only
// chunks whose recency differs from the saved one. A policy's numbers grow, so such a chunk's
// number is above the highest of the last save, or its record is newer.
//
// A policy's numbers begin anew in each process. So a saved number is the policy's number plus the
// highest one that an earlier process saved (`base`). So all saved numbers of a device can be
// compared.
//
// Owned by the device's tier; the store's lock protects it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/store/chunk_table.h"

namespace kvkeep::store_internal {

class UnsavedRecency {
 public:
  static constexpr size_t kMost = 65536;  // slots

  // Sets the limit of slots. 0: kMost.
  void SetMost(uint64_t most) { most_ = most == 0 ? kMost : most; }

  // Begins with the numbers that an earlier process saved. None is above `base`. All chunks have
  // one, except those whose record is newer than `saved_to`. `committed`: the device's newest
  // record. `newest`: the newest numbers of the policies, by tenant.
  void Begin(uint64_t base, CommitSequence saved_to, CommitSequence committed,
             std::vector<int64_t> newest) {
    KVKEEP_CHECK(!saving_);
    slots_.clear();
    base_ = base;
    saved_to_ = std::min(saved_to, committed);  // later records are not in the index yet
    may_be_saved_ = committed;
    saved_ = std::move(newest);
    all_ = saved_to < committed;
  }

  // For a chunk that came to this device. It may have been noted for another one before.
  void NoteStored(Chunk& chunk, ChunkSlot slot) {
    chunk.recency_noted = false;
    NoteTouched(chunk, slot);
  }
  void NoteTouched(Chunk& chunk, ChunkSlot slot) {
    if (all_ || chunk.recency_noted) return;
    all_ = slots_.size() >= most_;
    if (all_) return;
    chunk.recency_noted = true;
    slots_.push_back(slot);
  }
  bool empty() const { return slots_.empty() && !all_; }
  size_t noted() const { return slots_.size(); }
  bool saving() const { return saving_; }

  // Begins a save. Chunks that are noted from now on are for the next one. Returns whether the save
  // looks at all chunks. REQUIRES: the save before has ended.
  bool BeginSave(std::vector<int64_t> newest, CommitSequence committed) {
    KVKEEP_CHECK(!saving_);
    saving_ = true;
    looks_at_all_ = std::exchange(all_, false);
    next_ = 0;
    saved_slots_.clear();
    std::swap(saved_slots_, slots_);
    newest_ = std::move(newest);
    may_be_saved_ = committed;
    return looks_at_all_;
  }
  // Returns the next slot to look at, which may be another chunk's by now; none: that was the last.
  std::optional<ChunkSlot> Next(uint32_t slot_end) {
    if (looks_at_all_) {
      if (next_ >= slot_end) return std::nullopt;
      return ChunkSlot(next_++);
    }
    if (saved_slots_.empty()) return std::nullopt;
    const ChunkSlot slot = saved_slots_.front();
    saved_slots_.pop_front();
    return slot;
  }
  // Returns whether to save the chunk, which is on the device and has this recency.
  bool Take(Chunk& chunk, int64_t recency) {
    const bool noted = chunk.recency_noted;
    chunk.recency_noted = false;
    if (!noted && !looks_at_all_) return false;
    return recency > saved_[chunk.tenant.value()] || chunk.g3_sequence > saved_to_;
  }
  // Returns the number to save. Chunks that a policy evicts before all others have numbers below 0.
  uint64_t NumberOf(int64_t recency) const {
    return recency <= 0 ? 0 : base_ + static_cast<uint64_t>(recency);
  }
  void EndSave(bool saved) {
    KVKEEP_CHECK(saving_);
    saving_ = false;
    if (saved) {
      saved_ = std::move(newest_);
      saved_to_ = may_be_saved_;
    } else {
      all_ = true;
    }
  }

  // Returns whether the index may have a number of this record, to be removed with the record.
  bool MayBeSaved(CommitSequence sequence) const { return sequence <= may_be_saved_; }

 private:
  size_t most_ = kMost;
  std::deque<ChunkSlot> slots_;
  bool all_ = false;  // the next save looks at all chunks, since slots_ is not complete
  uint64_t base_ = 0;
  std::vector<int64_t> saved_;  // by tenant: numbers up to here are saved, of records up to there
  CommitSequence saved_to_, may_be_saved_;

  // The save under way.
  bool saving_ = false, looks_at_all_ = false;
  uint32_t next_ = 0;
  std::deque<ChunkSlot> saved_slots_;
  std::vector<int64_t> newest_;
};

}  // namespace kvkeep::store_internal
