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
    if (i + 1 < reads) now += milliseconds(500);  // idle: says nothing
  }
  return now;
}

}  // namespace

TEST_CASE("ReadSpeed guesses 1 GB/s before it was told of anything") {
  const ReadSpeed speed;
  CHECK(speed.TimeFor(4'000'000, MonotonicTime(0)) == milliseconds(4));
  CHECK(speed.TimeFor(4'000'000, std::chrono::hours(9)) == milliseconds(4));
  CHECK(speed.TimeFor(0, MonotonicTime(0)) == nanoseconds(0));
}

TEST_CASE("ReadSpeed comes to what reads took, and soon to another speed; idle time is none") {
  ReadSpeed speed;
  MonotonicTime now = ReadAlone(speed, 12, milliseconds(10), MonotonicTime(0));
  CHECK(speed.TimeFor(1'000'000, now).count() == Approx(10e6).epsilon(0.03));
  now = ReadAlone(speed, 12, nanoseconds(200'000), now);
  CHECK(speed.TimeFor(1'000'000, now).count() == Approx(200e3).epsilon(0.03));
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
  CHECK(speed.TimeFor(1'000'000, now).count() == Approx(2e6).epsilon(0.01));
  speed.OnStart(3'000'000, now);
  CHECK(speed.TimeFor(1'000'000, now).count() == Approx(8e6).epsilon(0.01));
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
  CHECK(speed.TimeFor(1'000'000, now).count() == Approx(5e6).epsilon(0.05));
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
  CHECK(speed.TimeFor(1'000'000, now).count() == Approx(4e6).epsilon(0.01));
}

TEST_CASE("ReadSpeed of a device that brings nothing any more ends at its longest time") {
  ReadSpeed speed;
  MonotonicTime now = ReadAlone(speed, 1, milliseconds(1), MonotonicTime(0));
  for (int round = 0; round < 2000; ++round) {
    speed.OnStart(1'000'000, now);
    now += std::chrono::seconds(30);
    speed.OnEnd(1'000'000, false, now);
  }
  CHECK(speed.TimeFor(1'000'000, now) == ReadSpeed::kLongest);
}

TEST_CASE("ReadSpeed forgets what a device did while nothing is read, by half in ten seconds") {
  ReadSpeed speed;
  MonotonicTime now = ReadAlone(speed, 12, milliseconds(9), MonotonicTime(0));  // 9 ns a byte
  const auto after = [&](int seconds) {
    return speed.TimeFor(1'000'000, now + std::chrono::seconds(seconds)).count();
  };
  CHECK(after(10) == Approx(5e6).epsilon(0.05));
  CHECK(after(20) == Approx(3e6).epsilon(0.05));
  CHECK(after(1000) == Approx(1e6).epsilon(0.01));
  ReadSpeed fast;
  const MonotonicTime then = ReadAlone(fast, 1, nanoseconds(200'000), MonotonicTime(0));
  CHECK(fast.TimeFor(1'000'000, then + std::chrono::hours(1)) == nanoseconds(200'000));
  // Not while it is read, however long that takes.
  speed.OnStart(1'000'000, now);
  CHECK(after(1000) == Approx(18e6).epsilon(0.05));
}

TEST_CASE(
    "ReadSpeed of a device whose only reads failed is asked again, and one good read is believed") {
  ReadSpeed speed;
  speed.OnStart(1'000'000, MonotonicTime(0));
  MonotonicTime now = std::chrono::seconds(10);
  speed.OnEnd(1'000'000, false, now);
  CHECK(speed.TimeFor(1'000'000, now) == ReadSpeed::kLongest);
  now += std::chrono::seconds(60);
  CHECK(speed.TimeFor(1'000'000, now) < milliseconds(20));
  now = ReadAlone(speed, 1, milliseconds(2), now);
  CHECK(speed.TimeFor(1'000'000, now).count() == Approx(2e6).epsilon(0.01));
}

}  // namespace kvkeep::store_internal
