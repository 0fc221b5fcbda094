#include "tiers/base/busy_poll.h"

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

using std::chrono::microseconds;

constexpr microseconds kLimit{50}, kShort{20}, kLong{51};

// A wait as a user makes it: polls when it should, in vain if `arrives` is beyond the limit.
bool Wait(BusyPoll& busy, microseconds arrives) {
  const bool poll = busy.ShouldPoll();
  busy.Waited(poll, poll && arrives <= busy.limit(), arrives);
  return poll;
}

TEST_CASE("who has waited for long sleeps at once, every time") {
  BusyPoll busy(kLimit);
  for (int i = 0; i < 10; ++i) CHECK_FALSE(Wait(busy, kLong));
}

TEST_CASE("looking begins after a short wait, and goes on while it finds something") {
  BusyPoll busy(kLimit);
  CHECK_FALSE(Wait(busy, kLimit));
  for (int i = 0; i < 10; ++i) CHECK(Wait(busy, kShort));
}

TEST_CASE("after looking in vain the next waits are slept through, each time twice as many") {
  BusyPoll busy(kLimit);
  static_cast<void>(Wait(busy, kShort));
  for (int sleeps : {2, 4, 8}) {
    REQUIRE(Wait(busy, kLong));
    for (int i = 0; i < sleeps; ++i) REQUIRE_FALSE(Wait(busy, kShort));
  }
  // A peer on the same core: answers come in time after a sleep, but never while polling.
  for (int i = 0; i < 20'000; ++i) {
    const bool poll = busy.ShouldPoll();
    busy.Waited(poll, false, kShort);
  }
  int looked = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool poll = busy.ShouldPoll();
    busy.Waited(poll, false, kShort);
    looked += poll;
  }
  CHECK(looked >= 1);
  CHECK(looked <= 20);
}

TEST_CASE("one find forgives what was in vain before") {
  BusyPoll busy(kLimit);
  static_cast<void>(Wait(busy, kShort));
  for (int round = 0; round < 5; ++round) {
    REQUIRE(Wait(busy, kLong));
    REQUIRE_FALSE(Wait(busy, kShort));
    REQUIRE_FALSE(Wait(busy, kShort));
    REQUIRE(Wait(busy, kShort));
  }
}

TEST_CASE("when the last of the sleeps was long, the next wait is slept through too") {
  BusyPoll busy(kLimit);
  static_cast<void>(Wait(busy, kShort));
  REQUIRE(Wait(busy, kLong));
  REQUIRE_FALSE(Wait(busy, kShort));
  REQUIRE_FALSE(Wait(busy, kLong));
  REQUIRE_FALSE(Wait(busy, kShort));
  CHECK(Wait(busy, kShort));
}

TEST_CASE("without a limit nobody ever looks") {
  BusyPoll busy(BusyPoll::Duration::zero());
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(Wait(busy, microseconds(1)));
  }
}

}  // namespace
}  // namespace kvkeep
