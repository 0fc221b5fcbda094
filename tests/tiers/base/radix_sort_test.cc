#include "tiers/base/radix_sort.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

struct Numbered {
  uint64_t number = 0;
  size_t place = 0;
  bool operator==(const Numbered&) const = default;
};

}  // namespace

TEST_CASE("a radix sort orders by number, and leaves those of one number in their order") {
  SeededRandom random(7);
  for (const uint64_t most : {uint64_t{1}, uint64_t{3}, uint64_t{5000}, uint64_t{1} << 40,
                              UINT64_MAX}) {
    for (const uint64_t above : {uint64_t{0}, uint64_t{1} << 62}) {
      for (const size_t count : {0, 1, 2, 3000}) {
        INFO("numbers below " << most << ", above " << above << ", " << count << " of them");
        std::vector<Numbered> sorted;
        for (size_t i = 0; i < count; ++i) sorted.push_back({above + random.Below(most), i});
        std::vector<Numbered> expected = sorted;
        std::stable_sort(expected.begin(), expected.end(),
                         [](const auto& a, const auto& b) { return a.number < b.number; });
        RadixSort(sorted, [](const Numbered& one) { return one.number; });
        CHECK(sorted == expected);
      }
    }
  }
}

}  // namespace kvkeep
