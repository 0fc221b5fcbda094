// Backoff: the wait before the next attempt, mostly to open a session. It doubles from the shortest
// wait to the longest, with a jitter of a quarter either way, so that the engines of a node do not
// come back all at once; after a good session it starts again. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>

#include "client/values/types.h"
#include "tiers/base/random.h"

namespace kvkeep::client {

class Backoff {
 public:
  // REQUIRES: 0 < min <= max.
  Backoff(Deadline min, Deadline max) : min_(min), max_(max), next_(min) {}

  // Starts again from the shortest wait, after an attempt that succeeded.
  void Reset() { next_ = min_; }
  // Returns the wait after an attempt whose session, if there was one, ended `lived` after the
  // attempt began.
  Deadline After(std::chrono::steady_clock::duration lived) {
    constexpr std::chrono::seconds kGoodSession{1};
    if (lived > kGoodSession) next_ = min_;
    const int64_t ms = next_.count();
    const auto jitter = RealRandom()->NextU64() % static_cast<uint64_t>(ms / 2 + 1);
    next_ = std::min(next_ * 2, max_);
    return Deadline(ms - ms / 4 + static_cast<int64_t>(jitter));
  }

 private:
  const Deadline min_, max_;
  Deadline next_;
};

}  // namespace kvkeep::client
