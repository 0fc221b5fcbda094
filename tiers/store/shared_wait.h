// SharedWait: how long readers wait for the chunks of one recall: so long after the last piece of
// any of them that came. The recall and its promotions share it. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>

#include "tiers/base/clock.h"

namespace kvkeep::store_internal {

class SharedWait {
 public:
  SharedWait(std::chrono::nanoseconds wait, MonotonicTime now) : wait_(wait), came_(now) {}
  void NoteCame(MonotonicTime now) { came_.store(now, std::memory_order_relaxed); }
  MonotonicTime until() const { return came_.load(std::memory_order_relaxed) + wait_; }

 private:
  const std::chrono::nanoseconds wait_;
  std::atomic<MonotonicTime> came_;
};

}  // namespace kvkeep::store_internal
