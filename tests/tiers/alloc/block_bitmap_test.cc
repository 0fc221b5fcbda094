#include "tiers/alloc/block_bitmap.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

uint64_t FirstOf(const std::vector<bool>& taken, uint64_t from, uint64_t end, bool wanted) {
  while (from < end && taken[from] != wanted) ++from;
  return from;
}

}  // namespace

TEST_CASE("BlockBitmap takes and gives back ranges whole or not at all, as a row of flags does") {
  SeededRandom random(GENERATE(range(1, 20)));
  const uint64_t blocks = random.Between(1, 400);  // some words, the last one cut anywhere
  BlockBitmap bitmap(blocks);
  std::vector<bool> taken(blocks);
  for (int step = 0; step < 500; ++step) {
    const uint64_t first = random.Below(blocks);
    const uint64_t count = random.Between(1, std::min<uint64_t>(blocks - first, 130));
    const bool take = random.Chance(0.5);
    const bool possible = FirstOf(taken, first, first + count, take) == first + count;
    REQUIRE((take ? bitmap.Take(first, count) : bitmap.GiveBack(first, count)) == possible);
    for (uint64_t i = first; possible && i < first + count; ++i) taken[i] = take;

    const uint64_t end = random.Between(first, blocks);
    REQUIRE(bitmap.NextFree(first, end) == FirstOf(taken, first, end, false));
    REQUIRE(bitmap.NextTaken(first, end) == FirstOf(taken, first, end, true));
  }
}

TEST_CASE("BlockBitmap answers at both ends of a whole TiB") {
  constexpr uint64_t kBlocks = uint64_t{1} << 28;
  BlockBitmap bitmap(kBlocks);
  CHECK(bitmap.Take(kBlocks - 1, 1));
  CHECK_FALSE(bitmap.Take(kBlocks - 2, 2));
  CHECK(bitmap.Take(0, 1));
  CHECK(bitmap.NextFree(0, kBlocks) == 1);
}

}  // namespace kvkeep
