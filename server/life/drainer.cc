#include "server/life/drainer.h"

#include <utility>

namespace kvkeep {

Drainer::Drainer(Store* store, const Clock* clock, absl::AnyInvocable<void()> on_begin)
    : store_(store), clock_(clock), on_begin_(std::move(on_begin)) {}

void Drainer::Start(std::chrono::nanoseconds timeout, Done done) {
  absl::AnyInvocable<void()> begin;
  {
    MutexLock lock(&mu_);
    begin = std::exchange(on_begin_, nullptr);
    waiters_.push_back({.deadline = clock_->Now() + timeout, .done = std::move(done)});
  }
  if (begin == nullptr) return;
  begin();
  store_->BeginDrain();
}

void Drainer::Poll() {
  {
    MutexLock lock(&mu_);
    if (waiters_.empty()) return;
  }
  const StoreSnapshot snapshot = store_->snapshot();
  // What waits is about to become dirty.
  const uint64_t dirty = snapshot.dirty_chunks + snapshot.g2.waiting_chunks;
  const MonotonicTime now = clock_->Now();
  std::vector<Waiter> over;
  {
    MutexLock lock(&mu_);
    const auto keep = std::stable_partition(waiters_.begin(), waiters_.end(),
                                            [&, ending = ending_](const Waiter& waiter) {
                                              return dirty > 0 && now < waiter.deadline && !ending;
                                            });
    over.assign(std::make_move_iterator(keep), std::make_move_iterator(waiters_.end()));
    waiters_.erase(keep, waiters_.end());
  }
  for (Waiter& waiter : over) {
    // What was written back in time is made stable in any case.
    store_->SyncAll(
        [dirty, done = std::move(waiter.done)](absl::Status) mutable { std::move(done)(dirty); });
  }
}

void Drainer::EndWaits() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
  }
  Poll();
}

}  // namespace kvkeep
