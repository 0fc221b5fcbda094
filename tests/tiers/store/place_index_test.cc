#include "tiers/store/place_index.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

namespace kvkeep::store_internal {
namespace {

std::vector<ChunkSlot> In(const PlaceIndex& index, uint64_t granule) {
  std::vector<ChunkSlot> slots;
  for (ChunkSlot slot = index.First(granule); slot != kNoSlot; slot = index.Next(slot)) {
    slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

}  // namespace

TEST_CASE("a chunk is found in the granule that its first block is in, and nowhere else") {
  std::vector<PlaceIndex::Node> nodes(300);
  PlaceIndex index(BlockNumber(1000), BlockCount(1000), nodes.data());
  REQUIRE(index.granules() == 16);
  std::map<ChunkSlot, BlockNumber> all;
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    const ChunkSlot slot(random() % 300);
    if (const auto known = all.find(slot); known != all.end()) {
      index.Remove(slot, known->second);
      all.erase(known);
    } else {
      all[slot] = BlockNumber(1000 + random() % 1000);
      index.Add(slot, all[slot]);
    }
    CHECK(index.size() == all.size());
    if (i % 100 != 0) continue;
    for (uint64_t granule = 0; granule < index.granules(); ++granule) {
      const Extent extent = index.ExtentOf(granule);
      std::vector<ChunkSlot> expected;
      for (const auto& [known, block] : all) {
        if (extent.first <= block && block.value() < extent.end()) expected.push_back(known);
      }
      CHECK(In(index, granule) == expected);
    }
  }
}

TEST_CASE("granules grow with the space, and the last one ends with it") {
  std::vector<PlaceIndex::Node> nodes(1);
  const PlaceIndex small(BlockNumber(0), BlockCount(65), nodes.data());
  CHECK(small.granules() == 2);
  CHECK(small.ExtentOf(1) == Extent{BlockNumber(64), BlockCount(1)});
  const uint64_t blocks = PlaceIndex::kMostGranules * 100 + 1;
  const PlaceIndex large(BlockNumber(0), BlockCount(blocks), nodes.data());
  CHECK(large.granules() <= PlaceIndex::kMostGranules);
  CHECK(large.ExtentOf(0).count == BlockCount(128));
  CHECK(large.ExtentOf(large.granules() - 1).end() == blocks);
}

}  // namespace kvkeep::store_internal
