#include "tiers/remote/health_watch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/objects/s3_answer.h"

namespace kvkeep {

namespace {

using HealthState = ObjectStoreHealth::State;

// A check asks for an absent object, so kAbsent proves that the store serves.
bool Proves(ObjectOutcome outcome) {
  return outcome == ObjectOutcome::kOk || outcome == ObjectOutcome::kAbsent;
}

// Returns the health after repeatedly failed checks of a store that takes itself to be well.
ObjectStoreHealth HealthOf(ObjectOutcome outcome, const ObjectError& error) {
  const bool passes = outcome == ObjectOutcome::kBroken || outcome == ObjectOutcome::kLate ||
                      outcome == ObjectOutcome::kThrottled;
  ObjectStoreHealth health{.state = passes ? HealthState::kAway : HealthState::kMisconfigured,
                           .error = error,
                           .what_to_do = std::string(AdviceFor(error.code))};
  if (health.error.code.empty()) health.error.code = std::string(NameOf(outcome));
  return health;
}

bool SameToPeople(const ObjectStoreHealth& a, const ObjectStoreHealth& b) {
  return a.state == b.state && a.takes_puts == b.takes_puts && a.error.code == b.error.code;
}

}  // namespace

struct HealthWatch::Checks {
  void OnAnswer(const ObjectAnswer& answer, MonotonicTime now) {
    MutexLock lock(&mu);
    KVKEEP_CHECK(under_way);
    under_way = false;
    next = now + kBetween;
    if (Proves(answer.outcome)) {
      proven = true;
      failures = 0;
      wrong.reset();
      return;
    }
    // The store had asked for less, and was not asked.
    if (answer.attempts == 0 && answer.outcome == ObjectOutcome::kThrottled) return;
    ++counters.failed_checks;
    if (++failures >= kFailures) wrong = HealthOf(answer.outcome, answer.error);
  }

  Mutex mu;
  bool under_way ABSL_GUARDED_BY(mu) = false;
  bool proven ABSL_GUARDED_BY(mu) = false;  // an answer says so, and no failure has come since
  MonotonicTime next ABSL_GUARDED_BY(mu){0};
  uint32_t failures ABSL_GUARDED_BY(mu) = 0;  // in a row
  // The health told until an answer proves otherwise.
  std::optional<ObjectStoreHealth> wrong ABSL_GUARDED_BY(mu);
  HealthWatchCounters counters ABSL_GUARDED_BY(mu);
};

HealthWatch::HealthWatch(const Clock* clock)
    : clock_(*clock), checks_(std::make_shared<Checks>()) {}

std::optional<ObjectStoreHealth> HealthWatch::Tick(BucketSource& source) {
  const MonotonicTime now = clock_.Now();
  const ObjectStoreHealth store = source.health();
  bool check = false, known = false;
  {
    MutexLock lock(&checks_->mu);
    if (store.state != HealthState::kWell) {
      checks_->proven = false;
      checks_->wrong = store;
    }
    check = !checks_->proven && !checks_->under_way && store.state == HealthState::kWell &&
            now >= checks_->next;
    if (check) {
      checks_->under_way = true;
      ++checks_->counters.checks;
    }
    known = checks_->proven || checks_->wrong.has_value();
  }
  if (check) {
    source.Check([checks = checks_, clock = &clock_](const ObjectAnswer& answer) {
      checks->OnAnswer(answer, clock->Now());
    });
  }
  if (!known) return std::nullopt;
  ObjectStoreHealth is = health(source);
  if (told_.has_value() && SameToPeople(*told_, is)) return std::nullopt;
  told_ = is;
  return is;
}

ObjectStoreHealth HealthWatch::health(const BucketSource& source) const {
  ObjectStoreHealth store = source.health();
  if (store.state != HealthState::kWell) return store;
  MutexLock lock(&checks_->mu);
  if (!checks_->wrong.has_value()) return store;
  ObjectStoreHealth wrong = *checks_->wrong;
  wrong.takes_puts = store.takes_puts;
  wrong.retry_in = std::max(checks_->next - clock_.Now(), std::chrono::nanoseconds(0));
  return wrong;
}

HealthWatchCounters HealthWatch::counters() const {
  MutexLock lock(&checks_->mu);
  return checks_->counters;
}

}  // namespace kvkeep
