#include "server/life/drainer.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

Drainer::Drainer(Store* store, HandOver* peers, const Clock* clock,
                 absl::AnyInvocable<void()> on_begin)
    : store_(store), peers_(peers), clock_(clock), on_begin_(std::move(on_begin)) {}

void Drainer::Start(std::chrono::nanoseconds timeout, const Wants& wants, Done done) {
  KVKEEP_CHECK(!wants.to_peers || has_peers());
  const MonotonicTime deadline = clock_->Now() + timeout;
  // First, so that peers find this node answering all the time.
  if (wants.to_peers) peers_->StayOpen();
  absl::AnyInvocable<void()> begin;
  bool wanted = false;
  {
    MutexLock lock(&mu_);
    begin = std::exchange(on_begin_, nullptr);
    wanted = wants_g4_ = wants_g4_ || wants.g4;
  }
  if (begin != nullptr) begin();
  // A drain under way is not begun again unless a new one wants more: the last one to begin covers
  // all earlier ones.
  for (bool more = begin != nullptr || wants.g4; more;) {
    store_->BeginDrain(wanted);
    MutexLock lock(&mu_);
    more = wants_g4_ != wanted;
    wanted = wants_g4_;
  }
  if (wants.to_peers) peers_->BeginHandOver(deadline);  // now that no chunk is put any more
  MutexLock lock(&mu_);
  waiters_.push_back({.deadline = deadline, .wants = wants, .done = std::move(done)});
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
  const HandedOver to_peers = has_peers() ? peers_->handed_over() : HandedOver();
  const bool more_for_g4 = snapshot.remote_writes_left + snapshot.remote_removals_left > 0;
  const MonotonicTime now = clock_->Now();
  std::vector<Waiter> over;
  {
    MutexLock lock(&mu_);
    const auto keep = std::stable_partition(
        waiters_.begin(), waiters_.end(), [&, ending = ending_](const Waiter& waiter) {
          const bool some = dirty > 0 || (waiter.wants.g4 && more_for_g4) ||
                            (waiter.wants.to_peers && to_peers.under_way);
          return some && now < waiter.deadline && !ending;
        });
    over.assign(std::make_move_iterator(keep), std::make_move_iterator(waiters_.end()));
    waiters_.erase(keep, waiters_.end());
  }
  for (Waiter& waiter : over) {
    left.to_peers = std::nullopt;
    if (waiter.wants.to_peers) left.to_peers = to_peers;
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
