// StallWatch: ends streams whose client keeps them waiting for too long.
//
// A stream registers a clock, starts it when it waits for its client, and stops it after. Tick,
// called now and then, finds clocks that have run for the limit, and tells their streams, once. A
// stream need not unregister, because it owns its clock.
//
// Thread-safe.
#pragma once

#include <absl/functional/any_invocable.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class StallWatch {
 public:
  class StallClock {
   public:
    StallClock(const Clock* clock, absl::AnyInvocable<void()> on_stall)
        : clock_(clock), on_stall_(std::move(on_stall)) {}
    // Starts the clock from now, even if it was running.
    void Start() { since_.store(clock_->Now().count(), std::memory_order_relaxed); }
    void Stop() { since_.store(kStopped, std::memory_order_relaxed); }

   private:
    friend class StallWatch;
    static constexpr MonotonicTime::rep kStopped = -1;
    const Clock* const clock_;
    absl::AnyInvocable<void()> on_stall_;
    std::atomic<MonotonicTime::rep> since_{kStopped};
  };

  // `clock` must outlive the watch and its clocks.
  StallWatch(const Clock* clock, std::chrono::milliseconds limit) : limit_(limit), clock_(clock) {}

  // Applies to running clocks too.
  void SetLimit(std::chrono::milliseconds limit) { limit_ = limit; }

  // `on_stall` runs in Tick, while the clock that is returned lives.
  std::shared_ptr<StallClock> Add(absl::AnyInvocable<void()> on_stall) {
    auto added = std::make_shared<StallClock>(clock_, std::move(on_stall));
    MutexLock lock(&mu_);
    clocks_.push_back(added);
    return added;
  }

  void Tick() {
    std::vector<std::shared_ptr<StallClock>> stalled;
    {
      MutexLock lock(&mu_);
      const MonotonicTime now = clock_->Now();
      std::erase_if(clocks_, [&](const std::weak_ptr<StallClock>& weak) {
        std::shared_ptr<StallClock> clock = weak.lock();
        if (clock == nullptr) return true;
        auto since = clock->since_.load(std::memory_order_relaxed);
        if (since == StallClock::kStopped || now - MonotonicTime(since) < limit()) return false;
        // It may have been started anew meanwhile: then it is not stalled.
        if (!clock->since_.compare_exchange_strong(since, StallClock::kStopped)) return false;
        stalled.push_back(std::move(clock));
        return false;
      });
    }
    for (const auto& clock : stalled) clock->on_stall_();
  }

  std::chrono::milliseconds limit() const { return limit_.load(); }

 private:
  std::atomic<std::chrono::milliseconds> limit_;
  const Clock* const clock_;
  Mutex mu_;
  std::vector<std::weak_ptr<StallClock>> clocks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
