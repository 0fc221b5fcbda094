#include "tiers/policy/slot_arrays.h"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

namespace kvkeep {
namespace {

struct Large {
  uint64_t words[13];
};

TEST_CASE("arrays of slots are zeros, and do not overlap") {
  SlotArrays slots(1000);
  auto* const large = slots.Add<Large>();
  auto* const small = slots.Add<uint32_t>();
  for (uint32_t i = 0; i < 1000; ++i) {
    REQUIRE(large[i].words[12] == 0);
    REQUIRE(small[i] == 0);
    large[i].words[12] = i;
    small[i] = i + 1;
  }
  for (uint32_t i = 0; i < 1000; ++i) {
    REQUIRE(large[i].words[12] == i);
    REQUIRE(small[i] == i + 1);
    slots.Prefetch(ChunkSlot(i));
  }
  CHECK(slots.max_slots() == 1000);
}

TEST_CASE("every array is touched ahead of the slots in use, one that came later too") {
  constexpr uint32_t kSlots = 2'000'000;
  constexpr uint64_t kAhead = GrowingMemory::kStepsAhead * GrowingMemory::kStepBytes;
  MemoryToucher toucher;
  SlotArrays slots(kSlots, &toucher);
  auto* const array = slots.Add<Large>();
  CHECK(slots.asked_bytes() >= kAhead);
  slots.Use(100'000);
  toucher.Await();
  std::vector<unsigned char> pages((100'000 * sizeof(Large) + kAhead) / 4096);
  REQUIRE(mincore(array, pages.size() * 4096, pages.data()) == 0);
  CHECK(std::all_of(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
  const uint64_t large = slots.asked_bytes();
  CHECK(large >= 100'000 * sizeof(Large) + kAhead);
  slots.Add<uint64_t>();
  CHECK(slots.asked_bytes() - large >= 100'000 * sizeof(uint64_t) + kAhead);
  const uint64_t both = slots.asked_bytes();
  slots.Use(1'000'000);
  CHECK(slots.asked_bytes() - both >= 900'000 * sizeof(Large));
  CHECK(slots.asked_bytes() <= 1'000'000 * (sizeof(Large) + sizeof(uint64_t)) +
                                     2 * (kAhead + GrowingMemory::kStepBytes));
}

}  // namespace
}  // namespace kvkeep
