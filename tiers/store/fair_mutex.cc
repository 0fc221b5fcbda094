#include "tiers/store/fair_mutex.h"

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

// This many looks take some microseconds. Many holds end in that time, and to sleep and be woken
// takes longer. Many more looks would keep a CPU from the thread that has the lock.
constexpr int kLooks = 300;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // takes as long as a pause; yield does nothing on most
#endif
}

}  // namespace

// No wake-up is lost: the line's bit is set before the first look at kHeld. So the holder's Unlock
// either came before that look, which then finds the lock free, or it waits for line_mu_ and finds
// this thread waiting. For a turn the same is true of kTurn, which is cleared while the lock is
// held.
void FairMutex::WaitIn(Line& line) {
  Waiter self;
  line_mu_.Lock();
  (line.last == nullptr ? line.first : line.last->next) = &self;
  line.last = &self;
  word_.fetch_or(line.bit, std::memory_order_relaxed);
  const int most_looks = &line == &turns_ ? 0 : kLooks;
  int looks = most_looks;
  while (!self.has_lock.load(std::memory_order_relaxed) && !TakeAsFirst(line, self)) {
    if (std::exchange(self.woken, false)) {
      self.lost = true;
      looks = most_looks;
    }
    if (looks > 0) {
      line_mu_.Unlock();
      looks = LookForIt(self, looks);
      line_mu_.Lock();  // after this the thread that handed it over does not use `self`
    } else {
      self.changed.Wait(&line_mu_);
    }
  }
  line_mu_.Unlock();
}

// Looks until it may have the lock, `looks` times at most. Returns how many looks are left.
int FairMutex::LookForIt(const Waiter& self, int looks) const {
  do {
    Pause();
    --looks;
  } while (looks > 0 && !self.has_lock.load(std::memory_order_relaxed) &&
           (word_.load(std::memory_order_relaxed) & kHeld) != 0);
  return looks;
}

bool FairMutex::TakeAsFirst(Line& line, const Waiter& self) {
  if (line.first != &self) return false;
  uint32_t word = word_.load(std::memory_order_relaxed) & ~line.takes;
  // A strong exchange fails only if another thread has the bits that it takes, or took them since.
  // The bits of the lines change under line_mu_. kTurn may be cleared meanwhile, but then the lock
  // is held.
  if (!word_.compare_exchange_strong(word, word | line.takes, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
    return false;
  }
  RemoveFirst(line);
  return true;
}

// A thread that waits for a turn lets those in line go first, a limited number of times.
FairMutex::Line& FairMutex::NextLine() {
  if (line_.first == nullptr) return turns_;
  const bool a_turn_may_begin =
      turns_.first != nullptr && (word_.load(std::memory_order_relaxed) & kTurn) == 0;
  if (!a_turn_may_begin) return line_;
  Waiter& waits = *turns_.first;
  return waits.lost || ++waits.passed > kMostTurnPassed ? turns_ : line_;
}

void FairMutex::LeaveToNext() {
  MutexLock guard(&line_mu_);
  Line& line = NextLine();
  KVKEEP_CHECK(line.first != nullptr);
  Waiter& first = *line.first;
  if (first.lost || ++first.passed >= kMostPassed) {
    word_.fetch_or(line.takes, std::memory_order_relaxed);
    RemoveFirst(line);
    // The next holder sees what was done under the lock, since both hold line_mu_ in between.
    first.has_lock.store(true, std::memory_order_relaxed);
    first.changed.NotifyOne();  // under line_mu_, as `first` dies soon after it sees this
    return;
  }
  word_.fetch_and(~kHeld, std::memory_order_release);
  if (!std::exchange(first.woken, true)) first.changed.NotifyOne();
}

void FairMutex::RemoveFirst(Line& line) {
  line.first = line.first->next;
  if (line.first != nullptr) return;
  line.last = nullptr;
  word_.fetch_and(~line.bit, std::memory_order_relaxed);
}

}  // namespace kvkeep::store_internal
