#include "tiers/store/window_search.h"

#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "tiers/policy/eviction_policy.h"
#include "tiers/store/hold.h"

namespace kvkeep::store_internal {
namespace {

using Yield = WindowSearch::Yield;

// A granule of ten blocks, all of chunks last wanted this long ago.
Yield Old(double age) { return {.blocks = 10, .evicted = 10, .age = 10 * age}; }
Yield Free() { return {.blocks = 10}; }
Yield Taken() { return {.staying = 1}; }

std::optional<Window> Find(const std::vector<Yield>& row, uint64_t blocks,
                           std::vector<uint64_t> seeds, int* looks = nullptr) {
  WindowSearch search(row.size(), blocks, std::move(seeds));
  int looked = 0;
  const auto look = [&](uint64_t granule) {
    ++looked;
    return row.at(granule);
  };
  while (search.Step(look)) {
  }
  if (looks != nullptr) *looks = looked;
  return search.best();
}

}  // namespace

TEST_CASE("a window grows to the side whose chunks were wanted longest ago") {
  const std::vector<Yield> row = {Old(1), Old(5), Old(9), Old(2), Old(8), Old(3)};
  const auto window = Find(row, 30, {2});
  REQUIRE(window.has_value());
  CHECK(window->begin == 1);  // 9, then 5 rather than 2, then 2 rather than 1
  CHECK(window->end == 4);
}

TEST_CASE("free space is taken before any chunk") {
  const std::vector<Yield> row = {Old(99), Old(1), Free(), Free()};
  const auto window = Find(row, 30, {1});
  REQUIRE(window.has_value());
  CHECK(window->begin == 1);
  CHECK(window->end == 4);
}

TEST_CASE("of several seeds the window wins whose chunks were wanted longest ago") {
  const std::vector<Yield> row = {Old(5), Old(1), Taken(), Old(4), Old(4), Taken(), Old(9), Old(2)};
  const auto window = Find(row, 20, {0, 3, 6});
  REQUIRE(window.has_value());
  CHECK(window->begin == 6);
  CHECK(window->end == 8);
}

TEST_CASE("what stays is passed over, up to as many pieces as an image may have") {
  CHECK(Find({Old(1), Taken(), Taken(), Old(1)}, 20, {0}).has_value());
  std::vector<Yield> row(WindowSearch::kMostStaying + 1, Taken());
  row.insert(row.begin(), Old(1));
  row.push_back(Old(1));
  CHECK_FALSE(Find(row, 20, {0}).has_value());
}

TEST_CASE("no window is enough: none is best") {
  CHECK_FALSE(Find({Old(1), Old(1)}, 30, {0, 1}).has_value());
  CHECK_FALSE(Find({Old(1), Old(1)}, 10, {}).has_value());
}

TEST_CASE("what emptying a granule gives is what is free, and the chunks that can go") {
  std::vector<PlaceIndex::Node> nodes(600);
  PlaceIndex places(BlockNumber(0), BlockCount(640), nodes.data());
  places.Add(ChunkSlot(1), BlockNumber(64));   // can go, wanted at 30 of 100
  places.Add(ChunkSlot(2), BlockNumber(70));   // stays
  places.Add(ChunkSlot(3), BlockNumber(127));  // can go, was taken off the order
  places.Add(ChunkSlot(4), BlockNumber(128));  // the next granule's
  const auto judge = [](ChunkSlot slot) {
    std::optional<WindowSearch::Candidate> candidate;
    if (slot == ChunkSlot(1)) candidate = {.blocks = 4, .newest = 100, .recency = 30};
    if (slot == ChunkSlot(3)) candidate = {.blocks = 10, .newest = 100, .recency = -5};
    return candidate;
  };
  const Yield yield = WindowSearch::LookAt(places, 1, /*free_blocks=*/7, judge);
  CHECK(yield.blocks == 7 + 4 + 10);
  CHECK(yield.evicted == 14);
  CHECK(yield.age == 4 * 70 + 10 * 100);
  CHECK(yield.staying == 1);
}

TEST_CASE("a granule in which very many chunks begin is not looked at to its end") {
  std::vector<PlaceIndex::Node> nodes(600);
  PlaceIndex places(BlockNumber(0), BlockCount(64), nodes.data());
  for (uint32_t i = 0; i < 600; ++i) places.Add(ChunkSlot(i), BlockNumber(0));
  uint32_t judged = 0;
  const auto judge = [&](ChunkSlot) {
    ++judged;
    return std::optional(WindowSearch::Candidate{.blocks = 1});
  };
  const Yield yield = WindowSearch::LookAt(places, 0, 0, judge);
  CHECK(judged == WindowSearch::kMostLooked);
  CHECK(yield.blocks == WindowSearch::kMostLooked);
  CHECK(yield.staying == 1);
}

TEST_CASE("a spent hold still names one victim, or parks one that cannot go") {
  std::vector<PlaceIndex::Node> nodes(8);
  PlaceIndex places(BlockNumber(0), BlockCount(640), nodes.data());
  const auto policy = MakeEvictionPolicy("lru", {.max_chunks = 8});
  for (uint32_t i = 1; i <= 3; ++i) {
    policy->OnInsert({.slot = ChunkSlot(i), .fingerprint = Fingerprint(i), .blocks = 1},
                     MonotonicTime(i));
  }
  const auto place_of = [](ChunkSlot slot) {
    std::optional<BlockNumber> place;  // the first one cannot go
    if (slot != ChunkSlot(1)) place = BlockNumber(64 * slot.value());
    return place;
  };
  Hold hold(1);
  hold.Count(1);
  REQUIRE(hold.Spent());
  CHECK(WindowSearch::Seeds(*policy, places, hold, place_of).empty());
  CHECK(policy->Victim() == ChunkSlot(2));
  CHECK(WindowSearch::Seeds(*policy, places, hold, place_of) == std::vector<uint64_t>{2});
  CHECK(policy->Victim() == ChunkSlot(2));
}

TEST_CASE("each granule of a window is looked at once") {
  const std::vector<Yield> row(1000, Old(1));
  int looks = 0;
  REQUIRE(Find(row, 1000, {500}, &looks).has_value());
  CHECK(looks <= 102);
}

}  // namespace kvkeep::store_internal
