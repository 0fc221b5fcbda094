// A completed delete leaves nothing for the process that follows a kill.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

void Await(StoreTester& s, bool durable, std::string* told) {
  *told = "waiting";
  s.store().WhenDeleted(durable, [told](const absl::Status& status) {
    *told = status.ok() ? "ok" : std::string(status.message());
  });
}

// Runs until that is reported, and no further.
void RunUntilTold(StoreTester& s, const std::string& told) {
  while (told == "waiting") REQUIRE(s.world.RunOneAtRandom());
}

}  // namespace

TEST_CASE("what was deleted does not come back by a kill once the delete is over") {
  StoreTester s;
  std::string told;
  for (uint64_t i = 0; i < 100; ++i) REQUIRE(s.Put(i % 10, 4096) != "away");
  SECTION("of the index, as of G2") {
    s.Settle();
    for (uint64_t i = 0; i < 10; ++i) REQUIRE(s.Where(i) == "23");
    CHECK(s.Delete({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) == 10);
    Await(s, false, &told);
    CHECK(told == "waiting");
  }
  SECTION("while it is on its way to the index") {
    while (s.world.index().All().empty()) REQUIRE(s.world.RunOneAtRandom());
    s.Delete({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    Await(s, false, &told);
  }
  RunUntilTold(s, told);
  CHECK(told == "ok");
  s.KillAndStart();
  for (uint64_t i = 0; i < 10; ++i) CHECK(s.Where(i) == "");
  s.Settle();
  for (uint64_t i = 0; i < 10; ++i) CHECK(s.Get(i) == "miss");
}

TEST_CASE("a delete waits for no reader of G3, and no kill meanwhile brings the chunk back") {
  StoreTester s;
  PutIntoG3(s, 1, 4096);
  const ChunkReader reader = s.Pin(1);  // its read is under way
  REQUIRE(s.Delete({1}) == 1);
  std::string told;
  Await(s, false, &told);
  s.world.index_executor().RunAll();  // nothing of the device's own
  CHECK_FALSE(s.world.index().Find(s.Id(1)).has_value());
  CHECK(told == "ok");
  s.store().CheckInvariants();
}

TEST_CASE("a durable delete is over once no loss of power brings the chunk back") {
  StoreTester s;
  REQUIRE(s.Put(1, 4096) == "stored");
  s.Settle();
  REQUIRE(s.Durable(1) == "ok");
  REQUIRE(s.Delete({1}) == 1);
  std::string told;
  Await(s, true, &told);
  RunUntilTold(s, told);
  CHECK(told == "ok");
  CHECK(s.world.index().unsynced_writes() == 0);
  s.PowerCutAndStart();
  s.RunAll();
  CHECK(s.Where(1) == "");
}

TEST_CASE("a delete that the index does not take says so, and may be asked for again") {
  StoreTester s;
  REQUIRE(s.Put(1, 4096) == "stored");
  s.Settle();
  s.world.index().SetFaults({.commit_error = 1});
  REQUIRE(s.Delete({1}) == 1);
  std::string told;
  Await(s, false, &told);
  s.Pass(std::chrono::seconds(60));
  CHECK(told != "waiting");
  CHECK(told != "ok");
  s.world.index().SetFaults({});
  CHECK(s.Delete({1}) == 0);
  Await(s, false, &told);
  s.Pass(std::chrono::seconds(60));
  CHECK(told == "ok");
  s.KillAndStart();
  CHECK(s.Where(1) == "");
}

}  // namespace kvkeep
