#include "tiers/objects/retry_budget.h"

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

TEST_CASE("a request has three attempts, with pauses that double and are up to half shorter") {
  RetryBudget budget({});
  const MonotonicTime never = seconds(1000);
  CHECK(budget.TryRetry(1, MonotonicTime(0), never, 0) == milliseconds(25));
  CHECK(budget.TryRetry(2, MonotonicTime(0), never, 0) == milliseconds(50));
  CHECK_FALSE(budget.TryRetry(3, MonotonicTime(0), never, 0).has_value());
  CHECK(budget.retries() == 2);
  SeededRandom random(1);
  for (int i = 0; i < 8; ++i) {
    const auto pause = budget.TryRetry(2, MonotonicTime(0), never, random.NextU64());
    REQUIRE(pause.has_value());
    CHECK(*pause >= milliseconds(25));
    CHECK(*pause <= milliseconds(50));
  }
}

TEST_CASE("pauses stop doubling at the longest") {
  RetryBudget budget({.max_attempts = 100});
  CHECK(budget.TryRetry(99, MonotonicTime(0), seconds(9), 0) == seconds(1));
}

TEST_CASE("no attempt begins at the deadline or behind it, and none that is refused costs") {
  RetryBudget budget({});
  const MonotonicTime now = seconds(5);
  CHECK_FALSE(budget.TryRetry(1, now, now + milliseconds(25), 0).has_value());
  CHECK_FALSE(budget.TryRetry(1, now, now - seconds(1), 0).has_value());
  CHECK(budget.TryRetry(1, now, now + milliseconds(26), 0).has_value());
  CHECK(budget.retries() == 1);
  CHECK(budget.refused() == 0);
}

TEST_CASE("when all fails no more is sent than a tenth beyond what was asked for and was saved") {
  RetryBudget budget({});
  SeededRandom random(3);
  uint64_t sent = 0;
  for (int request = 0; request < 10'000; ++request) {
    budget.CountRequest();
    for (uint32_t attempts = 1;; ++attempts) {
      ++sent;
      if (!budget.TryRetry(attempts, seconds(0), seconds(9), random.NextU64()).has_value()) break;
    }
  }
  CHECK(sent <= 11'010);
  CHECK(sent >= 11'000);
  CHECK(budget.refused() > 0);
  // The saved budget is bounded, however well it goes.
  for (int i = 0; i < 10'000; ++i) budget.CountRequest();
  int retried = 0;
  while (budget.TryRetry(1, seconds(0), seconds(9), 0).has_value()) ++retried;
  CHECK(retried == 10);
}

}  // namespace kvkeep
