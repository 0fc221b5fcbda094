// AskLimits: what all sources over one object store share, whatever keys they have: how many
// questions are asked in a second, and how many images are being read.
//
// Each tenant has an equal share of the questions. The part of it that the tenant did not use
// lately is kept for it, whatever the others ask. Questions in nobody's share are free for any
// tenant. A tenant counts from its first question on.
//
// Thread-safe. O(tenants) a question.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>

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
    if (rate_.per_second() == probes) return;
    rate_ = TokenBucket(probes);
    Divide();
  }
  // `tenant`: by TenantTagOf.
  bool may_find(uint32_t tenant, MonotonicTime now) {
    MutexLock lock(&mu_);
    return SavedFor(tenant, now) > 0;
  }
  // Leaves half of the questions of a second to searches.
  bool may_ask_age(MonotonicTime now) {
    MutexLock lock(&mu_);
    return rate_.saved(now) > rate_.per_second() / 2;
  }
  // Returns how many of `wanted` questions the tenant may ask now: at least `least`.
  uint64_t TakeProbes(uint32_t tenant, uint64_t wanted, uint64_t least, MonotonicTime now) {
    KVKEEP_CHECK(least <= wanted);
    MutexLock lock(&mu_);
    const uint64_t saved = SavedFor(tenant, now);
    const uint64_t may = std::clamp(saved, least, std::max(least, wanted));
    rate_.Take(may);
    // The tenant owes the questions that only `least` allowed. Questions beyond its share that were
    // nobody's cost it nothing.
    const uint64_t owed = may - std::min(may, saved);
    TokenBucket& share = ShareOf(tenant);
    share.Take(std::min(may - owed, share.saved(now)) + owed);
    return may;
  }

  // Returns how many images were being read already.
  uint32_t BeginReading() { return readings_.fetch_add(1, std::memory_order_relaxed); }
  void EndReading() { KVKEEP_CHECK(readings_.fetch_sub(1, std::memory_order_relaxed) > 0); }

 private:
  TokenBucket& ShareOf(uint32_t tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto [share, is_new] = shares_.try_emplace(tenant);
    if (is_new) Divide();
    return share->second;
  }
  void Divide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint64_t each = rate_.per_second() / std::max<uint64_t>(1, shares_.size());
    for (auto& [tenant, share] : shares_) {
      share = TokenBucket(rate_.limited() ? std::max<uint64_t>(1, each) : 0);
    }
  }
  uint64_t SavedFor(uint32_t tenant, MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const uint64_t own = ShareOf(tenant).saved(now), all = rate_.saved(now);
    if (!rate_.limited()) return all;
    uint64_t others = 0;
    for (auto& [other, share] : shares_) others += other == tenant ? 0 : share.saved(now);
    return std::max(own, all - std::min(all, others));
  }

  Mutex mu_;
  TokenBucket rate_ ABSL_GUARDED_BY(mu_);
  // One share for each tenant that has asked.
  std::map<uint32_t, TokenBucket> shares_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint32_t> readings_{0};
};

}  // namespace kvkeep
