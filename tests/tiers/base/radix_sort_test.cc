#include "tiers/base/radix_sort.h"

#include <absl/numeric/int128.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

struct Numbered {
  uint64_t number = 0;
  uint64_t place = 0;
  bool operator==(const Numbered&) const = default;
};

}  // namespace

TEST_CASE("a radix sort orders by number, by a second one where that is the same") {
  SeededRandom random(7);
  for (const uint64_t most : {uint64_t{1}, uint64_t{3}, uint64_t{5000}, uint64_t{100'000'007},
                              uint64_t{1} << 40, UINT64_MAX}) {
    for (const uint64_t above : {uint64_t{0}, uint64_t{1} << 62}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, kRadixFewest + 1, size_t{3000},
                                 5 * kRadixFewElements + 3}) {
        INFO("numbers below " << most << ", above " << above << ", " << count << " of them");
        std::vector<Numbered> sorted;
        for (size_t i = 0; i < count; ++i) {
          // Some far above all others, which then share one first digit.
          const uint64_t far = random.Below(1000) == 0 ? uint64_t{1} << 63 : 0;
          sorted.push_back({above + far + random.Below(most), i});
        }
        std::vector<Numbered> expected = sorted;
        std::sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) {
          return a.number != b.number ? a.number < b.number : a.place > b.place;
        });
        RadixSort(std::span(sorted), [](const Numbered& one) {
          return absl::MakeUint128(one.number, ~one.place);
        });
        CHECK(sorted == expected);
        RadixSort(std::span(sorted), [](const Numbered& one) { return one.place; });
        CHECK(std::is_sorted(sorted.begin(), sorted.end(),
                             [](const auto& a, const auto& b) { return a.place < b.place; }));
      }
    }
  }
}

}  // namespace kvkeep
