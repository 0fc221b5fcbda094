// FairMutex: the store's lock. A thread that waits for it is not passed by for long.
//
// A thread that lets go of a plain mutex and takes it again at once has it back before one that
// sleeps has woken up, time after time. Here waiting threads stand in line:
//   Lock        takes the lock where it is free, else stands in line
//   LockInLine  stands in line where there is one, so nobody who waits is passed by
//   Unlock      lets go of it and wakes the first in line. Until that one is awake anybody else may
//               have it: nobody waits for a thread that waits for a CPU. But once the first in line
//               came for it in vain, or was passed by kMostPassed times, it is handed over.
// To hand it over always would let it lie idle after each hold, for as long as a thread takes to
// wake up, or to get a CPU.
//
// Where nobody waits, locking and unlocking are one atomic operation each. Thread-safe, not
// recursive.
#pragma once

#include <absl/base/thread_annotations.h>

#include <atomic>
#include <cstdint>

#include "tiers/base/mutex.h"

namespace kvkeep::store_internal {

class ABSL_LOCKABLE FairMutex {
 public:
  static constexpr uint32_t kMostPassed = 1000;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (!TakeIfFree()) WaitInLine();
  }
  void LockInLine() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (has_waiters() || !TakeIfFree()) WaitInLine();
  }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return TakeIfFree(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    uint32_t word = kHeld;
    if (!word_.compare_exchange_strong(word, 0, std::memory_order_release,
                                       std::memory_order_relaxed)) {
      LeaveToFirst();
    }
  }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}
  // Somebody stands in line.
  bool has_waiters() const { return (word_.load(std::memory_order_relaxed) & kWaiters) != 0; }

 private:
  static constexpr uint32_t kHeld = 1, kWaiters = 2;

  // On the stack of the thread that waits.
  struct Waiter {
    Waiter* next = nullptr;
    CondVar changed;
    bool woken = false;                  // and has not looked since
    bool lost = false;                   // looked, and the lock was taken
    std::atomic<bool> has_lock = false;  // it was handed over
    uint32_t passed = 0;                 // times, while it was the first
  };

  bool TakeIfFree() {
    uint32_t word = word_.load(std::memory_order_relaxed);
    return (word & kHeld) == 0 &&
           word_.compare_exchange_strong(word, word | kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void WaitInLine();
  int LookForIt(const Waiter& self, int looks) const;
  void LeaveToFirst();
  bool TakeAsFirst(const Waiter& self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(line_mu_);
  void RemoveFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(line_mu_);

  // kHeld, and kWaiters while somebody stands in line; the latter changes under line_mu_.
  std::atomic<uint32_t> word_{0};
  Mutex line_mu_;  // for a moment, never for as long as the lock is held
  Waiter* first_ ABSL_GUARDED_BY(line_mu_) = nullptr;
  Waiter* last_ ABSL_GUARDED_BY(line_mu_) = nullptr;
};

}  // namespace kvkeep::store_internal
