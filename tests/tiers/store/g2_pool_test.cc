#include "tiers/store/g2_pool.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {

TEST_CASE("a pool claims what lies in it, and nothing of its neighbours") {
  G2Pool pool("", BlockNumber(64), BlockCount(64), BlockCount(64), {},
              MakeEvictionPolicy("lru", {.max_chunks = 8}), nullptr);
  const auto extent = [](uint64_t first, uint64_t blocks) {
    return Extent{BlockNumber(first), BlockCount(blocks)};
  };
  CHECK(absl::IsOutOfRange(pool.Claim({extent(80, 2), extent(10, 2)})));
  CHECK_FALSE(pool.Claim({extent(80, 2), extent(127, 2)}).ok());
  CHECK_FALSE(pool.Claim({extent(128, 2)}).ok());
  CHECK(pool.Claim({extent(80, 2), extent(64, 2)}).ok());  // nothing of the others was kept
  CHECK_FALSE(pool.Claim({extent(65, 1)}).ok());
}

TEST_CASE("a pool gives out what has memory, and the rest piece by piece as it comes") {
  G2Pool pool("", BlockNumber(64), BlockCount(128), BlockCount(64), {.capacity_blocks = 10},
              MakeEvictionPolicy("lru", {.max_chunks = 8}), nullptr);
  const auto extent = [](uint64_t first, uint64_t blocks) {
    return Extent{BlockNumber(first), BlockCount(blocks)};
  };
  pool.AwaitMemory(extent(68, 60));
  pool.AwaitMemory(extent(134, 58));
  CHECK(pool.to_come_blocks() == 118);
  CHECK(pool.used_blocks() == 0);
  CHECK(pool.HasMemory(BlockNumber(67)));
  CHECK_FALSE(pool.HasMemory(BlockNumber(68)));
  CHECK_FALSE(pool.HasMemory(BlockNumber(127)));
  CHECK(pool.HasMemory(BlockNumber(128)));
  CHECK_FALSE(pool.Claim({extent(68, 1)}).ok());  // no image lies there
  const auto six = pool.Allocate(BlockCount(6), std::nullopt);
  const auto four = pool.Allocate(BlockCount(4), std::nullopt);
  REQUIRE((six.has_value() && four.has_value()));
  CHECK((*six)[0] == extent(128, 6));
  CHECK_FALSE(pool.Allocate(BlockCount(1), std::nullopt).has_value());
  pool.Withhold(extent(69, 1));  // found broken before it came
  pool.AddMemory(extent(68, 2));
  CHECK(pool.to_come_blocks() == 116);
  CHECK(pool.there_blocks() == 12);
  const auto one = pool.Allocate(BlockCount(1), std::nullopt);
  REQUIRE(one.has_value());
  CHECK((*one)[0] == extent(68, 1));
  CHECK_FALSE(pool.Allocate(BlockCount(1), std::nullopt).has_value());
  pool.AddMemory(extent(180, 12));  // from the end, then from the middle
  pool.AddMemory(extent(150, 10));
  pool.CheckInvariants();
  CHECK(pool.to_come_blocks() == 94);
  CHECK(pool.HasMemory(BlockNumber(155)));
  CHECK_FALSE(pool.HasMemory(BlockNumber(160)));
  pool.AddMemory(extent(134, 16));
  pool.AddMemory(extent(160, 20));
  pool.AddMemory(extent(70, 58));
  CHECK(pool.to_come_blocks() == 0);
  CHECK(pool.used_blocks() == 6 + 4 + 1 + 1);
  pool.CheckInvariants();
}

TEST_CASE("a block that is withheld is given out no more once it is freed") {
  G2Pool pool("", BlockNumber(64), BlockCount(64), BlockCount(64), {.capacity_blocks = 64},
              MakeEvictionPolicy("lru", {.max_chunks = 8}), nullptr);
  const auto all = pool.Allocate(BlockCount(64), std::nullopt);
  REQUIRE(all.has_value());
  const auto page = [](uint64_t first, uint64_t count) {
    return Extent{BlockNumber(first), BlockCount(count)};
  };
  for (const Extent& broken : {page(64, 1), page(70, 2), page(127, 1)}) pool.Withhold(broken);
  pool.Withhold(page(70, 2));
  CHECK(pool.TakeBroken().size() == 3);
  CHECK(pool.TakeBroken().empty());
  pool.LookAgain(ExtentList{page(65, 5), page(71, 2)});
  CHECK(pool.TakeBroken() == std::vector{page(70, 2)});
  CHECK(pool.withheld_blocks() == 0);  // in use still
  pool.Free(*all);
  CHECK(pool.withheld_blocks() == 4);
  CHECK(pool.used_blocks() == 4);
  while (const auto one = pool.Allocate(BlockCount(1), std::nullopt)) {
    const uint64_t block = (*one)[0].first.value();
    CHECK((block != 64 && block != 70 && block != 71 && block != 127));
  }
  CHECK(pool.used_blocks() == 64);
}

}  // namespace kvkeep::store_internal
