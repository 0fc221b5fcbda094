#include "tiers/store/entry_arrays.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

namespace kvkeep::store_internal {
namespace {

bool AllEmpty(const TableEntry* array, uint32_t entries) {
  return std::all_of(array, array + entries, [](const auto& entry) { return entry.empty(); });
}

TEST_CASE("an array is empty, and shares nothing with another one") {
  EntryArrays arrays(2, 64);
  TableEntry* const one = arrays.Take(64);
  TableEntry* const other = arrays.Take(64);
  REQUIRE(AllEmpty(one, 64));
  std::fill_n(one, 64, TableEntry{.tag = 1, .slot = 1});
  CHECK(AllEmpty(other, 64));
}

TEST_CASE("an array given back is the next of its size, and of no other; empty again") {
  EntryArrays arrays(4, 64);
  TableEntry* const small = arrays.Take(16);
  TableEntry* const second = arrays.Take(16);
  std::fill_n(small, 16, TableEntry{.tag = 1, .slot = 1});
  arrays.GiveBack(small, 16);
  arrays.GiveBack(second, 16);
  CHECK(arrays.Take(32) != second);
  CHECK(arrays.Take(16) == second);
  TableEntry* const again = arrays.Take(16);
  CHECK(again == small);
  CHECK(AllEmpty(again, 16));
}

TEST_CASE("every user may double its array up to the largest, whatever the others do") {
  constexpr uint32_t kUsers = 7, kMost = 1024;
  EntryArrays arrays(kUsers, kMost);
  for (uint32_t user = 0; user < kUsers; ++user) {
    TableEntry* held = arrays.Take(2);
    for (uint32_t entries = 4; entries <= kMost; entries *= 2) {
      TableEntry* const larger = arrays.Take(entries);
      // Not given back in time for the next, as if all users were at the same point.
      static_cast<void>(held);
      held = larger;
    }
    CHECK(AllEmpty(held, kMost));
  }
}

}  // namespace
}  // namespace kvkeep::store_internal
