#include "tiers/store/read_speed.h"

#include <catch2/catch.hpp>

#include "tiers/base/units.h"

namespace kvkeep::store_internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Reads of 1 MB that take `each`, one after the other.
MonotonicTime ReadAlone(ReadSpeed& speed, int reads, nanoseconds each, MonotonicTime now) {
  for (int i = 0; i < reads; ++i) {
    speed.OnStart(1'000'000, now);
    now += each;
    speed.OnEnd(1'000'000, true, now);
    now += milliseconds(500);  // idle: says nothing
  }
  return now;
}

}  // namespace

TEST_CASE("ReadSpeed guesses 1 GB/s before it was told of anything") {
  const ReadSpeed speed;
  CHECK(speed.TimeFor(4'000'000) == milliseconds(4));
  CHECK(speed.TimeFor(0) == nanoseconds(0));
}

TEST_CASE("ReadSpeed comes to what reads took, and soon to another speed; idle time is none") {
  ReadSpeed speed;
  MonotonicTime now = ReadAlone(speed, 12, milliseconds(10), MonotonicTime(0));
  CHECK(speed.TimeFor(1'000'000).count() == Approx(10e6).epsilon(0.01));
  ReadAlone(speed, 12, nanoseconds(200'000), now);
  CHECK(speed.TimeFor(1'000'000).count() == Approx(200e3).epsilon(0.02));
}

TEST_CASE("ReadSpeed counts reads at once as one busy time, and waits behind what is under way") {
  ReadSpeed speed;
  MonotonicTime now(0);
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 4; ++i) speed.OnStart(1'000'000, now);
    CHECK(speed.under_way_bytes() == 4'000'000);
    now += milliseconds(8);
    for (int i = 0; i < 4; ++i) speed.OnEnd(1'000'000, true, now);
  }
  CHECK(speed.TimeFor(1'000'000).count() == Approx(2e6).epsilon(0.01));
  speed.OnStart(3'000'000, now);
  CHECK(speed.TimeFor(1'000'000).count() == Approx(8e6).epsilon(0.01));
}

TEST_CASE("ReadSpeed of a device that is never idle is measured all the same") {
  ReadSpeed speed;
  MonotonicTime now(0);
  speed.OnStart(1'000'000, now);
  for (int i = 0; i < 1000; ++i) {
    speed.OnStart(1'000'000, now);  // before the last one has ended
    now += milliseconds(5);
    speed.OnEnd(1'000'000, true, now);
  }
  speed.OnEnd(1'000'000, true, now);
  CHECK(speed.TimeFor(1'000'000).count() == Approx(5e6).epsilon(0.05));
}

TEST_CASE("ReadSpeed takes failed reads for lost time") {
  ReadSpeed speed;
  MonotonicTime now(0);
  for (int round = 0; round < 12; ++round) {
    speed.OnStart(1'000'000, now);
    speed.OnStart(1'000'000, now);
    now += milliseconds(2);
    speed.OnEnd(1'000'000, false, now);
    now += milliseconds(2);
    speed.OnEnd(1'000'000, true, now);
  }
  CHECK(speed.TimeFor(1'000'000).count() == Approx(4e6).epsilon(0.01));
}

TEST_CASE("ReadSpeed of a device that brings nothing any more ends at its longest time") {
  ReadSpeed speed;
  MonotonicTime now = ReadAlone(speed, 1, milliseconds(1), MonotonicTime(0));
  for (int round = 0; round < 2000; ++round) {
    speed.OnStart(1'000'000, now);
    now += std::chrono::seconds(30);
    speed.OnEnd(1'000'000, false, now);
  }
  CHECK(speed.TimeFor(1'000'000) == ReadSpeed::kLongest);
}

}  // namespace kvkeep::store_internal
