#include "server/storage/failure_watch.h"

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

using Advice = FailureWatch::Advice;
using std::chrono::seconds;

// Looks once a second. Returns how long it took to that advice. Other advice before that fails the
// test.
struct Watched {
  FailureWatch watch;
  MonotonicTime now{0};

  seconds Until(Advice wanted, DeviceState state) {
    const MonotonicTime since = now;
    for (int i = 0; i < 2000; ++i, now += seconds(1)) {
      const Advice advice = watch.Look(state, now);
      if (advice == wanted) break;
      CHECK(advice == Advice::kNothing);
    }
    return std::chrono::duration_cast<seconds>(now - since);
  }
  void Is(std::optional<DeviceState> state, seconds time) {
    for (const MonotonicTime end = now + time; now < end; now += seconds(1)) {
      CHECK(watch.Look(state, now) == Advice::kNothing);
    }
  }
};

}  // namespace

TEST_CASE("a device that cannot be read is opened anew when it has failed for a while") {
  Watched one;
  one.Is(DeviceState::kOk, seconds(100));
  CHECK(one.Until(Advice::kOpenAnew, DeviceState::kOffline) == FailureWatch::kPatience);
}

TEST_CASE("one that takes no writes is probed, and again soon where that fails") {
  Watched one;
  CHECK(one.Until(Advice::kProbe, DeviceState::kReadOnly) == FailureWatch::kPatience);
  one.now += seconds(1);
  CHECK(one.Until(Advice::kProbe, DeviceState::kReadOnly) ==
        FailureWatch::kProbeAgain - seconds(1));
}

TEST_CASE("each time in a row waits twice as long, however often the store tries it in between") {
  Watched one;
  seconds wanted = FailureWatch::kPatience;
  for (int times = 0; times < 12; ++times) {
    one.Is(DeviceState::kDegraded, seconds(3));
    one.Is(DeviceState::kOffline, seconds(1));
    one.Is(DeviceState::kDegraded, seconds(2));
    CHECK(one.Until(Advice::kOpenAnew, DeviceState::kOffline) == wanted - seconds(3));
    one.watch.OpensAnew();
    one.now += seconds(1);
    one.Is(DeviceState::kOk, seconds(60));  // not long enough
    wanted = std::min(2 * wanted, FailureWatch::kLongestPatience);
  }
  CHECK(wanted == FailureWatch::kLongestPatience);
  one.Is(DeviceState::kOk, FailureWatch::kWell + seconds(1));
  CHECK(one.Until(Advice::kOpenAnew, DeviceState::kOffline) == FailureWatch::kPatience);
}

TEST_CASE("one that hangs is neither well nor to be opened anew") {
  Watched one;
  one.Until(Advice::kOpenAnew, DeviceState::kOffline);
  one.watch.OpensAnew();
  one.Is(std::nullopt, FailureWatch::kWell * 2);
  CHECK(one.Until(Advice::kOpenAnew, DeviceState::kOffline) == 2 * FailureWatch::kPatience);
}

}  // namespace kvkeep
