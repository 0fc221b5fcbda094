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

}  // namespace kvkeep::store_internal
