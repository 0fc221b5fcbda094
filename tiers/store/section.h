// Section: a hold of the store's lock.
#pragma once

#include <optional>

#include "tiers/store/chunks.h"

namespace kvkeep::store_internal {

// Holds the lock while it lives; runs the tasks of the hold (hold.h) after unlocking. Nobody holds
// it for long: work that may be much is done in slices, and the lock is let go between them.
class ABSL_SCOPED_LOCKABLE Section {
 public:
  // kJoin: a device's records are adopted, thousands of holds on a thread of each device. The
  // section is one turn of the lock (fair_mutex.h), or one after another if it is long.
  enum class Kind : uint8_t { kServing, kMaintenance, kJoin, kNotMeasured };
  explicit Section(Chunks* chunks, Kind kind = Kind::kServing)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(store_lock) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  ~Section() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Lets go of the lock, runs the hold's tasks, and takes the lock again behind those who wait for
  // it. The caller has to find anew what it knew of the state: only chunks that it holds are where
  // they were (README.md says what holds one). Never inside a Change.
  void Yield() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Yield, when this hold has done its share of work. Returns whether it did.
  bool YieldIfSpent() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  uint32_t yields() const { return yields_; }

 private:
  // Some milliseconds: to wake the next one up is worth it, and no device waits for long.
  static constexpr uint32_t kHoldsOfTurn = 128;

  void Lock(bool after_yield) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  std::optional<MonotonicTime> Take(bool after_yield) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void Unlock(bool to_yield) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // It takes turns, and this turn has more holds. One hold is a turn where a test runs something
  // between two of them on this thread: another device may join there, and this one would wait for
  // itself.
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
  bool woke_ = false;      // the store was at rest
};

}  // namespace kvkeep::store_internal
