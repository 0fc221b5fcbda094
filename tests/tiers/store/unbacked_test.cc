// Chunks that no device took at first, and that are offered again.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {

TEST_CASE("a child lies next to its parent also when its device took no writes at first") {
  StoreTester s;
  for (const uint64_t i : {0, 10, 20}) {
    REQUIRE(s.Put(i, 4096) == "stored");
    s.Settle();
  }
  s.Delete({0});  // leaves a hole that fits the children as well
  s.Settle();
  s.world.SetGone(0, true);
  for (uint64_t i = 21; i < 26; ++i) {
    REQUIRE(s.Put(i, 4096, {.parent = i - 1}) == "stored");
    s.RunAll();
  }
  REQUIRE(s.store().snapshot().g2.waiting_chunks == 5);
  s.world.SetGone(0, false);
  s.Pass(std::chrono::seconds(40));
  for (uint64_t i = 21; i < 26; ++i) {
    CHECK(s.DeviceBlock(i, 0) == s.DeviceBlock(i - 1, 0) + 2);
  }
}

}  // namespace kvkeep
