// A world whose arena outlives the store, and the places of the images in it.
#pragma once

#include <span>
#include <vector>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {

inline WorldOptions WarmWorld(bool with_device = true) {
  WorldOptions options = SmallWorld();
  options.arena_outlives = true;
  if (!with_device) options.device_blocks.clear();
  return options;
}

// Where images begin, in the order of blocks.
inline std::vector<uint64_t> MarkedBlocks(StoreTester& s) {
  std::vector<uint64_t> blocks;
  const auto marks = s.world.arena().live_marks();
  for (uint64_t i = 0; i < marks.size(); ++i) {
    if (marks[i] != 0) blocks.push_back(i);
  }
  return blocks;
}

inline std::span<std::byte> BlocksAt(StoreTester& s, uint64_t first, uint64_t count = 1) {
  return s.world.arena().Memory({BlockNumber(first), BlockCount(count)});
}

}  // namespace kvkeep
