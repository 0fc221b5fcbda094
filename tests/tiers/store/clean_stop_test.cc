// State after an orderly stop: a power cut takes nothing of it, until something is committed again.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// Ends as the daemon does.
void StopClean(StoreTester& s) {
  s.store().BeginDrain();
  s.Settle();
  std::string synced;
  s.store().SyncAll([&](absl::Status status) { synced = status.ok() ? "ok" : "failed"; });
  s.RunAll();
  REQUIRE(synced == "ok");
}

}  // namespace

TEST_CASE("after a stop in order a power cut takes nothing, and no header is read") {
  StoreTester s;
  for (uint64_t i = 0; i < 10; ++i) REQUIRE(s.Put(i) == "stored");
  StopClean(s);
  for (int starts = 0; starts < 3; ++starts) {  // nothing is committed in between
    CHECK(s.world.index().ReadStableMark()->clean);
    s.PowerCutAndStart();
    for (uint64_t i = 0; i < 10; ++i) {
      CHECK(s.Where(i) == "3");  // nothing has run yet
      CHECK(s.Durable(i) == "ok");
    }
    s.Settle();
  }
  for (uint64_t i = 0; i < 10; ++i) CHECK(s.Get(i) == "hit");
}

TEST_CASE("what was committed after a stop in order makes the next power cut one as any") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  StopClean(s);
  s.KillAndStart();
  REQUIRE(s.world.index().ReadStableMark()->clean);
  SECTION("an add") { REQUIRE(s.Put(2) == "stored"); }
  SECTION("a removal: its blocks may be written by others before it is stable") {
    s.Delete({1});
  }
  s.RunAll();
  CHECK_FALSE(s.world.index().ReadStableMark()->clean);
  const bool removed = !s.world.index().Find(s.Id(1)).has_value();
  CHECK(s.world.index().unsynced_writes() == 1);  // by that commit: the mark was synced before it
  s.world.PowerCut();
  s.world.Start();
  s.Connect();
  CHECK(s.Where(1) == "");  // till its header is read
  s.RunAll();
  CHECK((s.Where(1) == "3" || removed));
}

TEST_CASE("an index that cannot say it is clean no more takes nothing") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  StopClean(s);
  s.KillAndStart();
  s.world.index().SetFaults({.sync_error = 1});
  REQUIRE(s.Put(2) == "stored");
  std::string durable;
  s.WhenDurable(2, &durable);
  s.Pass(std::chrono::seconds(2));
  CHECK(durable == "away");
  CHECK_FALSE(s.world.index().Find(s.Id(2)).has_value());
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kReadOnly);
  CHECK(s.Get(1) == "hit");
  CHECK(s.Get(2) == "hit");
}

}  // namespace kvkeep
