// Work on the bytes of an image is posted near the NUMA node where the image lies in G2.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

constexpr size_t kSegmentFilling = 3 * kMiB;  // three pieces; an image fills its segment

WorldOptions TwoSegments() {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 2048;
  options.g2_segment_blocks = 1024;
  options.device_blocks = {4096};
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 2048 * kBlockBytes;
  options.store.max_leased_bytes = 2048 * kBlockBytes;
  return options;
}

using NearCounts = std::vector<int>;

// Returns how many tasks were posted near each of the two nodes while `run` ran.
NearCounts Near(StoreTester& s, const std::function<void()>& run) {
  s.world.arena().has_nodes = true;
  const auto count = [&s](int node) {
    const auto& near = s.world.executor().near();
    const auto found = near.find(node);
    return found == near.end() ? 0 : found->second;
  };
  const int first = count(0), second = count(1);
  run();
  return {count(0) - first, count(1) - second};
}

// Writes of the first may begin before the second is put.
void PutTwo(StoreTester& s) {
  REQUIRE(s.Put(1, kSegmentFilling) == "stored");
  REQUIRE(s.Put(2, kSegmentFilling) == "stored");
  s.Settle();
}

}  // namespace

TEST_CASE("images are written back, and their pieces verified, near their memory") {
  StoreTester s(TwoSegments());
  CHECK(Near(s, [&] { PutTwo(s); }) == NearCounts{1, 1});
  s.KillAndStart();
  CHECK(Near(s, [&] { CHECK(s.Get(2) == "hit"); }) == NearCounts{3, 0});  // into an empty G2
  CHECK(Near(s, [&] { CHECK(s.Get(1) == "hit"); }) == NearCounts{0, 3});
}

TEST_CASE("images are encrypted near their memory, for a device and for beyond the node") {
  WorldOptions options = TwoSegments();
  SECTION("a device") { options.encryption = WorldOptions::Encryption::kOn; }
  SECTION("beyond the node") {
    options.device_blocks = {};
    options.remote = true;
  }
  const int tasks = options.remote ? 1 : 1 + 2 + 3;  // the header, two more lanes, ends of writes
  StoreTester s(options);
  CHECK(Near(s, [&] { PutTwo(s); }) == NearCounts{tasks, tasks});
}

}  // namespace kvkeep
