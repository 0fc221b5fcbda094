// UnsavedRecency: of one device, which chunks' recency is to be saved, and as what number.
//
// Remembers the slots of chunks that were touched or stored since the last save, while they are not
// too many. After that, and after a save that failed, all chunks are to be looked at. Among the
// chunks that it names, only those are saved whose recency differs from the saved one: a policy's
// numbers go up, so such a chunk's number is above the highest of the last save, or its record is
// newer.
//
// A policy's numbers begin anew in each process. So a saved number is the policy's number plus the
// highest one that an earlier process saved (`base`), and saved numbers of a device always compare.
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

  // 0: kMost.
  void SetMost(uint64_t most) { most_ = most == 0 ? kMost : most; }

  // What is saved is of an earlier process: no number above `base`, and all chunks but those whose
  // record is newer than `saved_to`. `newest` are the policies' numbers by tenant, `committed` the
  // device's newest record.
  void Begin(uint64_t base, CommitSequence saved_to, CommitSequence committed,
             std::vector<int64_t> newest) {
    KVKEEP_CHECK(!saving_);
    slots_.clear();
    base_ = base;
    saved_to_ = std::min(saved_to, committed);  // what comes later is not in the index yet
    may_be_saved_ = committed;
    saved_ = std::move(newest);
    all_ = saved_to < committed;
  }

  // The chunk came to the device; it may have been noted for another one.
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

  // A save begins; what is noted from now on is for the next one. Returns whether it looks at all
  // chunks. REQUIRES: the one before has ended.
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
  // The next to be looked at, which may be another chunk's by now; none: that was all.
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
  // Whether the chunk, which is on the device and has that recency, is to be saved.
  bool Take(Chunk& chunk, int64_t recency) {
    const bool noted = chunk.recency_noted;
    chunk.recency_noted = false;
    if (!noted && !looks_at_all_) return false;
    return recency > saved_[chunk.tenant.value()] || chunk.g3_sequence > saved_to_;
  }
  // What goes before all others is a policy's below zero.
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

  // Whether the index may have something of a record, so that it has to be told when that goes.
  bool MayBeSaved(CommitSequence sequence) const { return sequence <= may_be_saved_; }

 private:
  size_t most_ = kMost;
  std::deque<ChunkSlot> slots_;
  bool all_ = false;  // the next save looks at all chunks: slots_ does not tell
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
