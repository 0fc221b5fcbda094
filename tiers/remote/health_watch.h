// HealthWatch: the proven health of a source. A store that nobody asks cannot know that it is
// misconfigured or away, and once its pause is over it says that it is well. So this asks for an
// absent object: soon after the start, and after each failure until one answer proves that the
// store serves. Until then health() still tells the last trouble.
//
// Tick comes from one thread; health and counters are thread-safe. No lock is held over a call of
// the source's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/remote/bucket_source.h"

namespace kvkeep {

struct HealthWatchCounters {
  uint64_t checks = 0, failed_checks = 0;
};

class HealthWatch {
 public:
  // Time between two checks. kFailures failures in a row count, whatever the store makes of them.
  static constexpr std::chrono::seconds kBetween{2};
  static constexpr uint32_t kFailures = 3;

  // `clock` outlives this, and the source answers all checks before it is gone.
  explicit HealthWatch(const Clock* clock);

  // Called about once a second. Returns the health if people should be told it: on the first proof,
  // another state, another error, or a change of whether the store takes puts.
  std::optional<ObjectStoreHealth> Tick(BucketSource& source);

  ObjectStoreHealth health(const BucketSource& source) const;
  HealthWatchCounters counters() const;

 private:
  struct Checks;

  const Clock& clock_;
  const std::shared_ptr<Checks> checks_;       // answers may come when this is gone
  std::optional<ObjectStoreHealth> told_;      // last, to people
};

}  // namespace kvkeep
