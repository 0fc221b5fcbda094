// FairMutex: the store's lock. Other threads do not pass a waiting thread for long.
//
// A thread that unlocks a plain mutex and locks it again at once gets it before a sleeping thread
// has woken up, time after time. Here waiting threads stand in line:
//   Lock        takes the lock if it is free, else stands in line
//   LockInLine  stands in line if there is a line, so it passes nobody
//   Unlock      unlocks and wakes the first in line. Until that thread is awake, any other may take
//               the lock, so nobody waits for a thread that waits for a CPU. But once the first in
//               line has tried in vain, or was passed kMostPassed times, it is handed the lock.
// If the lock were always handed over, it would be idle after each hold, for as long as a thread
// takes to wake up or to get a CPU.
//
// Threads that need thousands of holds each, as those of joining devices, would wake one another
// after each hold. They take turns of many holds:
//   LockForTurn  takes the lock and begins a turn once the turn of another thread is over. Like any
//                thread it may take a free lock before a woken one; else it goes once threads in
//                line have gone kMostTurnPassed times. In its turn a thread may unlock and lock,
//                while threads that wait for a turn sleep
//   EndTurn      is called by the thread that has the turn, under the lock, before the Unlock that
//                ends it. Without it every thread that asks for a turn sleeps for ever
//
// If nobody waits, locking and unlocking are one atomic operation each. A thread in line looks at
// the lock for some microseconds before it sleeps. Thread-safe, not recursive. Nothing checks that
// the caller of Unlock holds the lock.
#pragma once

#include <absl/base/thread_annotations.h>

#include <atomic>
#include <cstdint>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"

namespace kvkeep::store_internal {

class ABSL_LOCKABLE FairMutex {
 public:
  static constexpr uint32_t kMostPassed = 1000;
  // How often threads in line go before one that waits for a turn: a turn may wait, but not for
  // milliseconds.
  static constexpr uint32_t kMostTurnPassed = 50;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (!TakeIfFree()) WaitIn(line_);
  }
  void LockInLine() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (has_waiters() || !TakeIfFree()) WaitIn(line_);
  }
  void LockForTurn() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    uint32_t word = 0;
    if (!word_.compare_exchange_strong(word, kHeld | kTurn, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      WaitIn(turns_);
    }
  }
  void EndTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    KVKEEP_CHECK((word_.fetch_and(~kTurn, std::memory_order_relaxed) & kTurn) != 0);
  }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return TakeIfFree(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    uint32_t word = word_.load(std::memory_order_relaxed);
    while (!AnyoneIsNext(word)) {
      if (word_.compare_exchange_weak(word, word & ~kHeld, std::memory_order_release,
                                      std::memory_order_relaxed)) {
        return;
      }
    }
    LeaveToNext();
  }
  // Tells the analysis that the lock is held; checks nothing.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}
  // Returns whether a thread stands in line; threads that wait for a turn do not count.
  bool has_waiters() const { return (word_.load(std::memory_order_relaxed) & kInLine) != 0; }

 private:
  // kTurn: a thread has a turn. kInLine, kForTurn: a thread waits in this line.
  static constexpr uint32_t kHeld = 1, kTurn = 2, kInLine = 4, kForTurn = 8;

  // It is on the stack of the waiting thread.
  struct Waiter {
    Waiter* next = nullptr;
    CondVar changed;
    bool woken = false;                  // it was woken, and has not looked since
    bool lost = false;                   // it looked, and the lock was taken
    std::atomic<bool> has_lock = false;  // it was handed the lock
    uint32_t passed = 0;                 // how often it was passed while it was the first
  };
  struct Line {
    const uint32_t bit;    // set while a thread is in the line
    const uint32_t takes;  // the bits that must be unset, and are set, to leave it
    Waiter* first = nullptr;
    Waiter* last = nullptr;
  };

  static bool AnyoneIsNext(uint32_t word) {
    return (word & kInLine) != 0 || (word & (kForTurn | kTurn)) == kForTurn;
  }
  bool TakeIfFree() {
    uint32_t word = word_.load(std::memory_order_relaxed);
    return (word & kHeld) == 0 &&
           word_.compare_exchange_strong(word, word | kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  void WaitIn(Line& line);
  int LookForIt(const Waiter& self, int looks) const;
  void LeaveToNext();
  Line& NextLine() ABSL_EXCLUSIVE_LOCKS_REQUIRED(line_mu_);
  bool TakeAsFirst(Line& line, const Waiter& self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(line_mu_);
  void RemoveFirst(Line& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(line_mu_);

  // The bits of the lines change under line_mu_; kTurn changes while the lock is held or taken.
  std::atomic<uint32_t> word_{0};
  Mutex line_mu_;  // held for a moment, never for as long as the lock is held
  // line_mu_ protects what is in the lines.
  Line line_{kInLine, kHeld};
  Line turns_{kForTurn, kHeld | kTurn};
};

}  // namespace kvkeep::store_internal
