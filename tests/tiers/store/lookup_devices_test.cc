// Lookups over many devices: their cost, and what each device's order of eviction learns.
#include <catch2/catch.hpp>
#include <algorithm>
#include <numeric>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

constexpr uint64_t kStoredChunks = 40;

// This many devices, with as many chunks each.
WorldOptions ManyDevices(size_t devices) {
  WorldOptions options = SmallWorld();
  options.g2_blocks = options.g2_segment_blocks = 128;
  options.device_blocks.assign(devices, 400);
  return options;
}

std::vector<uint64_t> StoreChunks(StoreTester& s) {
  std::vector<uint64_t> names(kStoredChunks);
  std::iota(names.begin(), names.end(), 0);
  for (const uint64_t name : names) {
    REQUIRE(s.Put(name) == "stored");
    s.RunAll();
  }
  s.Settle();
  return names;
}

}  // namespace

TEST_CASE("a lookup takes the lock no more often where there are many devices") {
  const auto takes = [](size_t devices) {
    StoreTester s(ManyDevices(devices));
    const std::vector<uint64_t> names = StoreChunks(s);
    s.Lookup(names, LeaseMode::kNone);
    const uint64_t before = s.store().snapshot().lock_hold.count();
    CHECK(s.Lookup(names, LeaseMode::kNone).leading_keys == kStoredChunks);
    return s.store().snapshot().lock_hold.count() - before;
  };
  CHECK(takes(8) == takes(1));
}

TEST_CASE("a lookup makes its chunks the youngest of each device, the tail older than the head") {
  constexpr size_t kDevices = 3;
  StoreTester s(ManyDevices(kDevices));
  StoreChunks(s);
  const std::vector<uint64_t> touched = {5, 30, 11, 2, 38, 17, 23, 8, 26};
  CHECK(s.Lookup(touched, LeaseMode::kNone).leading_keys == touched.size());
  size_t seen = 0;
  for (size_t device = 0; device < kDevices; ++device) {
    CAPTURE(device);
    const auto has = [&](uint64_t name) {
      return s.world.index(device).Find(s.Id(name)).has_value();
    };
    std::vector<uint64_t> there;
    for (uint64_t name = 0; name < kStoredChunks; ++name) {
      if (has(name)) there.push_back(name);
    }
    std::vector<uint64_t> order;  // in the order of eviction; evictions begin with the first device
    while (!there.empty()) {
      REQUIRE(s.store().Evict({.of_g3 = true, .bytes = 1})->chunks == 1);
      s.Settle();
      const auto gone = std::find_if_not(there.begin(), there.end(), has);
      REQUIRE(gone != there.end());
      order.push_back(*gone);
      there.erase(gone);
    }
    std::vector<uint64_t> expected;  // of the touched ones, from the tail to the head
    for (size_t i = touched.size(); i-- > 0;) {
      if (std::find(order.begin(), order.end(), touched[i]) != order.end()) {
        expected.push_back(touched[i]);
      }
    }
    REQUIRE(expected.size() <= order.size());
    seen += expected.size();
    CHECK(std::vector<uint64_t>(order.end() - static_cast<ptrdiff_t>(expected.size()),
                                order.end()) == expected);
  }
  CHECK(seen == touched.size());
}

}  // namespace kvkeep
