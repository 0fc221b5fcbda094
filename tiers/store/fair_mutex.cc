#include "tiers/store/fair_mutex.h"

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

// Some microseconds: many holds end within them, and to sleep and be woken takes longer. Much more
// would keep a CPU from those who are waited for.
constexpr int kLooks = 300;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// No wake-up is lost: kWaiters is set before the first look at kHeld, so the holder's Unlock either
// came before that look, which then finds the lock free, or waits for line_mu_ and finds this
// waiting.
void FairMutex::WaitInLine() {
  Waiter self;
  line_mu_.Lock();
  (last_ == nullptr ? first_ : last_->next) = &self;
  last_ = &self;
  word_.fetch_or(kWaiters, std::memory_order_relaxed);
  int looks = kLooks;
  while (!self.has_lock.load(std::memory_order_relaxed) && !TakeAsFirst(self)) {
    if (std::exchange(self.woken, false)) {
      self.lost = true;
      looks = kLooks;
    }
    if (looks > 0) {
      line_mu_.Unlock();
      looks = LookForIt(self, looks);
      line_mu_.Lock();  // who handed it over is done with `self` then
    } else {
      self.changed.Wait(&line_mu_);
    }
  }
  line_mu_.Unlock();
}

// Until it may have the lock, or has looked so often. Returns how many looks are left.
int FairMutex::LookForIt(const Waiter& self, int looks) const {
  do {
    Pause();
    --looks;
  } while (looks > 0 && !self.has_lock.load(std::memory_order_relaxed) &&
           (word_.load(std::memory_order_relaxed) & kHeld) != 0);
  return looks;
}

bool FairMutex::TakeAsFirst(const Waiter& self) {
  if (first_ != &self) return false;
  uint32_t word = kWaiters;
  const uint32_t taken = kHeld | (self.next == nullptr ? 0 : kWaiters);
  // Strong: it fails only where the lock is held.
  if (!word_.compare_exchange_strong(word, taken, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
    return false;
  }
  RemoveFirst();
  return true;
}

void FairMutex::LeaveToFirst() {
  MutexLock line(&line_mu_);
  KVKEEP_CHECK(first_ != nullptr);
  Waiter& first = *first_;
  if (first.lost || ++first.passed >= kMostPassed) {
    RemoveFirst();
    // What was done under the lock is seen by who has it next: both hold line_mu_ in between.
    if (first_ == nullptr) word_.fetch_and(~kWaiters, std::memory_order_relaxed);
    first.has_lock.store(true, std::memory_order_relaxed);
    first.changed.NotifyOne();  // under line_mu_: `first` goes as soon as it sees that
    return;
  }
  word_.fetch_and(~kHeld, std::memory_order_release);
  if (!std::exchange(first.woken, true)) first.changed.NotifyOne();
}

void FairMutex::RemoveFirst() {
  first_ = first_->next;
  if (first_ == nullptr) last_ = nullptr;
}

}  // namespace kvkeep::store_internal
