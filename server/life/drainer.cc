#include "server/life/drainer.h"

#include <utility>

namespace kvkeep {

Drainer::Drainer(Store* store, const Clock* clock, absl::AnyInvocable<void()> on_begin)
    : store_(store), clock_(clock), on_begin_(std::move(on_begin)) {}

void Drainer::Start(std::chrono::nanoseconds timeout, bool g4, Done done) {
  const MonotonicTime deadline = clock_->Now() + timeout;
  absl::AnyInvocable<void()> begin;
  bool wanted = false;
  {
    MutexLock lock(&mu_);
    begin = std::exchange(on_begin_, nullptr);
    wanted = wants_g4_ = wants_g4_ || g4;
  }
  if (begin != nullptr) begin();
  // A drain under way is not begun again unless a new one wants more: the last one to begin covers
  // all earlier ones.
  for (bool more = begin != nullptr || g4; more;) {
    store_->BeginDrain(wanted);
    MutexLock lock(&mu_);
    more = wants_g4_ != wanted;
    wanted = wants_g4_;
  }
  MutexLock lock(&mu_);
  waiters_.push_back({.deadline = deadline, .g4 = g4, .done = std::move(done)});
}

void Drainer::Poll() {
  {
    MutexLock lock(&mu_);
    if (waiters_.empty()) return;
  }
  const StoreSnapshot snapshot = store_->snapshot();
  // Waiting chunks are about to become dirty.
  const uint64_t dirty = snapshot.dirty_chunks + snapshot.g2.waiting_chunks;
  Left left{.dirty_chunks = dirty};
  if (snapshot.remote.has_value()) {
    left.g4_chunks = snapshot.remote_writes_left;
    left.g4_removals = snapshot.remote_removals_left;
  }
  const bool more_for_g4 = snapshot.remote_writes_left + snapshot.remote_removals_left > 0;
  const MonotonicTime now = clock_->Now();
  std::vector<Waiter> over;
  {
    MutexLock lock(&mu_);
    const auto keep = std::stable_partition(waiters_.begin(), waiters_.end(),
                                            [&, ending = ending_](const Waiter& waiter) {
                                              const bool some =
                                                  dirty > 0 || (waiter.g4 && more_for_g4);
                                              return some && now < waiter.deadline && !ending;
                                            });
    over.assign(std::make_move_iterator(keep), std::make_move_iterator(waiters_.end()));
    waiters_.erase(keep, waiters_.end());
  }
  for (Waiter& waiter : over) {
    // Chunks that were written back in time are made stable in any case.
    store_->SyncAll(
        [left, done = std::move(waiter.done)](absl::Status) mutable { std::move(done)(left); });
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
