#include "tiers/remote/ask_limits.h"

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kNoisy = 1, kQuiet = 2;

}  // namespace

TEST_CASE("who asks all the time leaves each other tenant its share of the questions") {
  AskLimits limits(200);
  uint64_t noisy = 0, quiet = 0, wanted = 0;
  for (MonotonicTime now = seconds(1); now < seconds(11); now += milliseconds(1)) {
    if (limits.may_find(kNoisy, now)) noisy += limits.TakeProbes(kNoisy, 14, 1, now);
    if (now % milliseconds(400) != MonotonicTime(0)) continue;
    wanted += 32;
    if (limits.may_find(kQuiet, now)) quiet += limits.TakeProbes(kQuiet, 32, 1, now);
  }
  CHECK(static_cast<double>(quiet) >= 0.9 * static_cast<double>(wanted));
  CHECK(noisy + quiet <= 200 * 10 + 200 + 100);  // a second's, saved up, and a new tenant's share
  CHECK(noisy + quiet >= 1900);                  // the part that one does not use the other has
}

TEST_CASE("a tenant that is alone may ask all that may be asked, also after others have") {
  AskLimits limits(200);
  CHECK(limits.TakeProbes(kQuiet, 1, 1, seconds(1)) == 1);
  uint64_t asked = 0;
  for (MonotonicTime now = seconds(2); now < seconds(12); now += milliseconds(1)) {
    asked += limits.TakeProbes(kNoisy, 10, 0, now);
  }
  CHECK(asked >= 2000 - 10);
  const MonotonicTime last = seconds(12) - milliseconds(1);
  CHECK_FALSE(limits.may_find(kNoisy, last));
  CHECK(limits.may_find(kQuiet, last));
}

TEST_CASE("without a limit all is asked, and a new limit is divided anew") {
  AskLimits limits(0);
  CHECK(limits.TakeProbes(kNoisy, 1'000'000, 0, seconds(1)) == 1'000'000);
  CHECK(limits.TakeProbes(kQuiet, 1, 0, seconds(1)) == 1);
  limits.SetProbesPerSecond(100);
  CHECK(limits.TakeProbes(kNoisy, 1000, 0, seconds(2)) == 50);
  CHECK(limits.TakeProbes(kQuiet, 1000, 0, seconds(2)) == 50);
}

}  // namespace kvkeep
