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
// Threads that need thousands of holds each, as those of devices that join, would wake one another
// after each hold. They take turns of many holds:
//   LockForTurn  takes the lock and begins a turn: when the turn of another thread is over, and
//                those who stand in line are through or have come first kMostTurnPassed times.
//                In its turn a thread may unlock and lock: who waits for a turn sleeps meanwhile
//   EndTurn      by who has the turn, under the lock, before the Unlock that ends it. Forgotten,
//                whoever asks for a turn sleeps for ever, that thread too
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
  // By those in line, of who waits for a turn: a turn is worth a wait, not one of milliseconds.
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
    word_.fetch_and(~kTurn, std::memory_order_relaxed);
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
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}
  // Somebody stands in line, not for a turn.
  bool has_waiters() const { return (word_.load(std::memory_order_relaxed) & kInLine) != 0; }

 private:
  // kTurn: somebody has a turn. kInLine, kForTurn: somebody waits in this line.
  static constexpr uint32_t kHeld = 1, kTurn = 2, kInLine = 4, kForTurn = 8;

  // On the stack of the thread that waits.
  struct Waiter {
    Waiter* next = nullptr;
    CondVar changed;
    bool woken = false;                  // and has not looked since
    bool lost = false;                   // looked, and the lock was taken
    std::atomic<bool> has_lock = false;  // it was handed over
    uint32_t passed = 0;                 // times, while it was the first
  };
  struct Line {
    const uint32_t bit;    // set while somebody is in it
    const uint32_t takes;  // what who leaves it sets, and finds unset
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

  // The bits of the lines change under line_mu_, kTurn while the lock is held or taken.
  std::atomic<uint32_t> word_{0};
  Mutex line_mu_;  // for a moment, never for as long as the lock is held
  // What is in them is protected by line_mu_.
  Line line_{kInLine, kHeld};
  Line turns_{kForTurn, kHeld | kTurn};
};

}  // namespace kvkeep::store_internal
