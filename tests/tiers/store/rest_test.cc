// When the store needs its periodic work rarely, and what ends that.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// Ticks of a tenth of a second until one finds everything at rest; at most this many.
int TicksToRest(StoreTester& s, int most = 100) {
  for (int ticks = 1; ticks <= most; ++ticks) {
    s.RunAll();
    s.world.clock().Advance(std::chrono::milliseconds(100));
    if (s.store().Tick()) return ticks;
  }
  return most + 1;
}

}  // namespace

TEST_CASE("a store is at rest when all is written back and synced, and not before") {
  StoreTester s;
  REQUIRE(TicksToRest(s) <= 100);
  s.world.HoldIndex(true);
  REQUIRE(s.Put(1) == "stored");
  CHECK(TicksToRest(s) == 101);  // not in the index
  s.world.HoldIndex(false);
  CHECK(TicksToRest(s) <= 100);
  CHECK(s.store().snapshot().dirty_chunks == 0);
  s.PowerCutAndStart();
  s.Settle();                // the header is read first
  CHECK(s.Where(1) == "3");  // it was synced: rest came after that
}

TEST_CASE("whoever asks a store at rest for anything wakes its ticker, once") {
  StoreTester s;
  REQUIRE(TicksToRest(s) <= 100);
  const uint64_t before = s.world.wakes();
  CHECK(s.Where(1).empty());
  CHECK(s.world.wakes() == before + 1);
  REQUIRE(s.Put(1) == "stored");
  CHECK(s.world.wakes() == before + 1);
  REQUIRE(TicksToRest(s) <= 100);
  CHECK(s.Get(1) == "hit");
  CHECK(s.world.wakes() == before + 2);
}

TEST_CASE("a tick wakes nobody, nor does what its owner asks at each tick") {
  StoreTester s;
  REQUIRE(TicksToRest(s) <= 100);
  const uint64_t before = s.world.wakes();
  for (int i = 0; i < 10; ++i) {
    CHECK(TicksToRest(s) == 1);
    CHECK(s.store().TakeForeignReads().empty());
    CHECK(s.store().StateOfAnswering(0).has_value());
    CHECK(s.store().beyond_is_quiet());
  }
  CHECK(s.world.wakes() == before);
}

TEST_CASE("a store that scrubs or drains does not rest") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  s.FloodG2();
  s.Settle();
  REQUIRE(s.Where(1) == "3");
  REQUIRE(TicksToRest(s) <= 100);
  s.store().ScrubRound(1);  // a byte a second: it takes hours
  CHECK(TicksToRest(s) == 101);
  s.store().ScrubRound(0);
  CHECK(TicksToRest(s) <= 100);
  s.store().BeginDrain();
  CHECK(TicksToRest(s) == 101);
}

}  // namespace kvkeep
