// Chunks that give way in G3 for a write, and when the index forgets them.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// Puts chunks until one had to give way in G3. Returns the next name.
uint64_t FillG3(StoreTester& s) {
  uint64_t name = 1;
  for (; s.counters().g3_evictions == 0; ++name) {
    REQUIRE(s.Put(name) == "stored");
    s.RunAll();
  }
  s.Settle();
  return name;
}

}  // namespace

TEST_CASE("what gives way for a write leaves the index with the batch that adds the write") {
  StoreTester s;
  const uint64_t next = FillG3(s);
  const StoreCounters before = s.counters();
  for (uint64_t i = 0; i < 10; ++i) {
    REQUIRE(s.Put(next + i) == "stored");
    s.RunAll();
    s.store().CheckInvariants();
  }
  CHECK(s.counters().g3_evictions - before.g3_evictions == 10);
  CHECK(s.counters().index_commits - before.index_commits == 10);
  CHECK(s.Where(next) == "23");
  CHECK(s.Where(1).empty());
}

TEST_CASE("what gives way for a write that hangs leaves the index, once somebody waits for that") {
  StoreTester s;
  const uint64_t next = FillG3(s);
  const uint64_t commits = s.counters().index_commits;
  REQUIRE(s.Put(next) == "stored");
  s.world.index_executor().RunAll();  // nothing of the device's own
  CHECK(s.counters().index_commits == commits);
  SECTION("as a delete does") {
    std::string told = "waiting";
    s.store().WhenDeleted(false, [&told](const absl::Status& status) {
      told = status.ok() ? "ok" : "failed";
    });
    CHECK(told == "waiting");
    s.world.index_executor().RunAll();
    CHECK(told == "ok");
  }
  SECTION("or time passes") {
    s.store().Tick();
    s.world.index_executor().RunAll();
  }
  CHECK(s.counters().index_commits == commits + 1);
  s.RunAll();
  CHECK(s.Where(next) == "23");
}

}  // namespace kvkeep
