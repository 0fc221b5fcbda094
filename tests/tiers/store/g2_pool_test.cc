#include "tiers/store/g2_pool.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {

TEST_CASE("a pool claims what lies in it, and nothing of its neighbours") {
  G2Pool pool("", BlockNumber(64), BlockCount(64), BlockCount(64), {},
              MakeEvictionPolicy("lru", {.max_chunks = 8}));
  const auto extent = [](uint64_t first, uint64_t blocks) {
    return Extent{BlockNumber(first), BlockCount(blocks)};
  };
  CHECK(absl::IsOutOfRange(pool.Claim({extent(80, 2), extent(10, 2)})));
  CHECK_FALSE(pool.Claim({extent(80, 2), extent(127, 2)}).ok());
  CHECK_FALSE(pool.Claim({extent(128, 2)}).ok());
  CHECK(pool.Claim({extent(80, 2), extent(64, 2)}).ok());  // nothing of the others was kept
  CHECK_FALSE(pool.Claim({extent(65, 1)}).ok());
}

TEST_CASE("a block that is withheld is given out no more once it is freed") {
  G2Pool pool("", BlockNumber(64), BlockCount(64), BlockCount(64), {.capacity_blocks = 64},
              MakeEvictionPolicy("lru", {.max_chunks = 8}));
  const auto all = pool.Allocate(BlockCount(64), std::nullopt);
  REQUIRE(all.has_value());
  for (const uint64_t block : {64, 70, 71, 127}) pool.Withhold(BlockNumber(block));
  pool.Withhold(BlockNumber(70));
  CHECK(pool.TakeBroken().size() == 4);
  CHECK(pool.TakeBroken().empty());
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
