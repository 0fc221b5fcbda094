// HealthWatch: how a source is, proven. A store that nobody asks cannot know that it is
// misconfigured or away, and once its pause is over it says that it is well. So this asks for an
// object that is not there: soon after the start, and after each failure until one answer proves
// that the store serves. Until then what was wrong is still told.
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
  // Between two checks. So many that fail in a row count, whatever the store makes of them.
  static constexpr std::chrono::seconds kBetween{2};
  static constexpr uint32_t kFailures = 3;

  // `clock` outlives this, and the source answers all checks before it is gone.
  explicit HealthWatch(const Clock* clock);

  // About once a second. Some: what people should be told, as it differs from what they were told
  // before: the first proof, another state, another error, or whether it takes puts.
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
