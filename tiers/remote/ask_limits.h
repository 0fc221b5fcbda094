// AskLimits: what all sources over one object store share, whatever keys they have: how many
// questions are asked in a second, and how many images are being read.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/mutex.h"
#include "tiers/base/token_bucket.h"

namespace kvkeep {

class AskLimits {
 public:
  // 0: no limit.
  explicit AskLimits(uint64_t probes_per_second) : rate_(probes_per_second) {}

  void SetProbesPerSecond(uint64_t probes) {
    MutexLock lock(&mu_);
    if (rate_.per_second() != probes) rate_ = TokenBucket(probes);
  }
  bool may_find(MonotonicTime now) {
    MutexLock lock(&mu_);
    return rate_.saved(now) > 0;
  }
  // Half of what may be asked in a second stays for searches.
  bool may_ask_age(MonotonicTime now) {
    MutexLock lock(&mu_);
    return rate_.saved(now) > rate_.per_second() / 2;
  }
  // So many of `wanted` questions may be asked now, `least` in any case.
  uint64_t TakeProbes(uint64_t wanted, uint64_t least, MonotonicTime now) {
    KVKEEP_CHECK(least <= wanted);
    MutexLock lock(&mu_);
    const uint64_t may = std::clamp(rate_.saved(now), least, std::max(least, wanted));
    rate_.Take(may);
    return may;
  }

  // How many images were being read already.
  uint32_t BeginReading() { return readings_.fetch_add(1, std::memory_order_relaxed); }
  void EndReading() { KVKEEP_CHECK(readings_.fetch_sub(1, std::memory_order_relaxed) > 0); }

 private:
  Mutex mu_;
  TokenBucket rate_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint32_t> readings_{0};
};

}  // namespace kvkeep
