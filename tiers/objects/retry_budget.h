// RetryBudget: decides whether a failed request is sent again, and when.
//
// It limits the attempts of a request, allows none that could not begin before the deadline, and
// limits retries to a share of all requests plus a saved number: a server that is down gets 1.1
// times its usual requests, not three times. A plain value: time and chance come from the caller.
// Integers only. Thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "tiers/base/clock.h"

namespace kvkeep {

struct RetryOptions {
  uint32_t max_attempts = 3;      // the first included
  uint32_t share_percent = 10;    // of requests
  uint32_t saved_retries = 10;    // at most, and at first
  std::chrono::milliseconds first_pause{25}, longest_pause{1000};  // doubling
};

class RetryBudget {
 public:
  explicit RetryBudget(const RetryOptions& options);

  // Counts a request that is sent for the first time.
  void CountRequest();
  // Pays for the next attempt after `attempts` of them, and returns how long to wait before it;
  // nullopt: give up. `random` is any number: pauses are up to half of them shorter.
  std::optional<std::chrono::nanoseconds> TryRetry(uint32_t attempts, MonotonicTime now,
                                                   MonotonicTime deadline, uint64_t random);

  uint64_t retries() const { return retries_; }
  uint64_t refused() const { return refused_; }  // for want of budget

 private:
  static constexpr uint64_t kRetry = 100;  // percents of a request

  const RetryOptions options_;
  uint64_t saved_;
  uint64_t retries_ = 0, refused_ = 0;
};

}  // namespace kvkeep
