// Backoff: how long to wait before the next try, to open a session mostly. Doubles from the least
// wait to the most, with a jitter of a quarter either way, so that the engines of a node do not
// come back all at once; after a session that was a good one it begins anew. Not thread-safe.
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

  // Starts again from the shortest wait, after a try that succeeded.
  void Reset() { next_ = min_; }
  // The wait, after a try whose session, if it came to be, ended `lived` after the try began.
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
