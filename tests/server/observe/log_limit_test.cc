#include "server/observe/log_limit.h"

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Returns how many of these were let through.
uint64_t Ask(LogLimit& limit, const std::string& site, uint64_t times, MonotonicTime now) {
  uint64_t allowed = 0;
  for (uint64_t i = 0; i < times; ++i) allowed += limit.Ask(site, now).has_value();
  return allowed;
}

}  // namespace

TEST_CASE("a site has a burst, then a line for every second that passed, up to the burst again") {
  LogLimit limit;
  CHECK(Ask(limit, "a", 1000, seconds(5)) == LogLimit::kBurst);
  CHECK(Ask(limit, "a", 1000, seconds(5) + milliseconds(999)) == 0);
  CHECK(Ask(limit, "a", 1000, seconds(6)) == 1);
  CHECK(Ask(limit, "a", 1000, seconds(9)) == 3);
  CHECK(Ask(limit, "b", 1, seconds(9)) == 1);  // each for itself
  CHECK(Ask(limit, "a", 1000, std::chrono::hours(1)) == LogLimit::kBurst);
}

TEST_CASE("the next line says how many were not written before it, each of them once") {
  LogLimit limit;
  CHECK(limit.Ask("a", seconds(1)) == 0u);
  CHECK(Ask(limit, "a", LogLimit::kBurst - 1 + 7, seconds(1)) == LogLimit::kBurst - 1);
  CHECK(limit.Ask("a", seconds(2)) == 7u);
  CHECK(limit.Ask("a", seconds(3)) == 0u);
}

TEST_CASE("where nothing comes any more, what was not written is told by itself") {
  LogLimit limit;
  Ask(limit, "a", LogLimit::kBurst + 7, seconds(1));
  Ask(limit, "quiet", 1, seconds(1));
  CHECK(limit.TakeUnsaid(seconds(2)).empty());  // the site may log it itself
  const auto unsaid = limit.TakeUnsaid(seconds(1) + LogLimit::kQuiet);
  REQUIRE(unsaid.size() == 1);
  CHECK(unsaid[0].site == "a");
  CHECK(unsaid[0].lines == 7);
  CHECK(limit.TakeUnsaid(seconds(100)).empty());
}

TEST_CASE("sites beyond the most there may be share one") {
  LogLimit limit;
  for (size_t i = 0; i < LogLimit::kMaxSites; ++i) {
    CHECK(Ask(limit, "site " + std::to_string(i), 1, seconds(1)) == 1);
  }
  uint64_t allowed = 0;
  for (int i = 0; i < 1000; ++i) allowed += Ask(limit, "more " + std::to_string(i), 1, seconds(1));
  CHECK(allowed == LogLimit::kBurst);
  CHECK(Ask(limit, "site 0", 1, seconds(1)) == 1);
}

}  // namespace kvkeep
