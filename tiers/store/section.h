// Section: a hold of the store's lock.
#pragma once

#include <optional>

#include "tiers/store/chunks.h"

namespace kvkeep::store_internal {

// Holds the lock while it lives, and runs the tasks of the hold (hold.h) after unlocking. Nobody
// holds the lock for long: a long piece of work is done in slices, with the lock unlocked between
// them.
class ABSL_SCOPED_LOCKABLE Section {
 public:
  // kJoin: adopts a device's records, in thousands of holds on a thread of each device. The section
  // is one turn of the lock (fair_mutex.h), or several turns if it is long.
  enum class Kind : uint8_t { kServing, kMaintenance, kJoin, kNotMeasured };
  explicit Section(Chunks* chunks, Kind kind = Kind::kServing)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(store_lock) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  ~Section() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Unlocks, runs the hold's tasks, and locks again behind the threads that wait for the lock. The
  // caller then has to look up anew what it knew of the state. Only chunks that it holds are where
  // they were (README.md says what holds a chunk). Never call it inside a Change.
  void Yield() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Yields if this hold has done its share of work. Returns whether it yielded.
  bool YieldIfSpent() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  uint32_t yields() const { return yields_; }

 private:
  // A turn takes some milliseconds: long enough to be worth waking the next thread, and short
  // enough for the other devices to wait.
  static constexpr uint32_t kHoldsOfTurn = 128;

  void Lock(bool after_yield) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  std::optional<MonotonicTime> Take(bool after_yield) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void Unlock(bool to_yield) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Returns whether the section takes turns and its turn has more holds. If a test runs something
  // between two holds on this thread (between_slices), a turn is one hold: another device may join
  // there, and would wait for ever for this thread's turn.
  bool within_turn() const {
    const bool alone = chunks_.deps_.between_slices == nullptr;
    return kind_ == Kind::kJoin && alone && yields_ % kHoldsOfTurn != 0;
  }
  Chunks& chunks_;
  const Kind kind_;
  uint32_t yields_ = 0;
  uint64_t waited_ns_ = 0;
  MonotonicTime locked_at_{0};
  MonotonicTime worked_at_{0};
  bool measured_ = false;  // worked_at_ was read
  bool woke_ = false;      // the store was at rest before this hold
};

}  // namespace kvkeep::store_internal
