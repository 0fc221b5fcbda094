#include "tiers/store/entry_arrays.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/fakes/seeded_random.h"

namespace kvkeep::store_internal {
namespace {

bool AllEmpty(const TableEntry* array, uint32_t entries) {
  return std::all_of(array, array + entries, [](const auto& entry) { return entry.empty(); });
}

void Fill(TableEntry* array, uint32_t entries, uint32_t with) {
  std::fill_n(array, entries, TableEntry{.tag = with, .slot = with});
}

bool AllAre(const TableEntry* array, uint32_t entries, uint32_t with) {
  return std::all_of(array, array + entries, [with](const TableEntry& entry) {
    return entry.tag == with && entry.slot == with;
  });
}

}  // namespace

TEST_CASE("an array is empty, and shares nothing with another one") {
  EntryArrays arrays(2, 16, 64);
  TableEntry* const one = arrays.Take(64);
  TableEntry* const other = arrays.Take(64);
  REQUIRE(AllEmpty(one, 64));
  Fill(one, 64, 1);
  CHECK(AllEmpty(other, 64));
}

TEST_CASE("an array given back is the next of its size, empty again") {
  EntryArrays arrays(4, 16, 64);
  TableEntry* const kept = arrays.Take(16);
  TableEntry* const given = arrays.Take(16);
  Fill(kept, 16, 1);
  Fill(given, 16, 2);
  arrays.GiveBack(given, 16);
  TableEntry* const again = arrays.Take(16);
  CHECK(again == given);
  CHECK(AllEmpty(again, 16));
  CHECK(AllAre(kept, 16, 1));
}

TEST_CASE("neighbours given back are one array of twice the size, and come apart again") {
  EntryArrays arrays(4, 16, 64);
  std::vector<TableEntry*> all;
  for (int i = 0; i < 4; ++i) all.push_back(arrays.Take(16));
  REQUIRE(arrays.used_bytes() == 4 * 16 * sizeof(TableEntry));
  arrays.GiveBack(all[1], 16);
  arrays.GiveBack(all[2], 16);  // side by side, and of different pairs
  CHECK(arrays.Take(32) == all[0] + 64);
  arrays.GiveBack(all[0], 16);
  CHECK(arrays.Take(32) == all[0]);
  CHECK(arrays.Take(16) == all[2]);
  CHECK(arrays.used_bytes() == 6 * 16 * sizeof(TableEntry));
}

TEST_CASE("users that double in any order never take more than one largest array each") {
  constexpr uint32_t kUsers = 37, kLeast = 16, kMost = 1024;
  const uint64_t seed = 20261123;
  INFO("seed " << seed);
  SeededRandom random(seed);
  struct User {
    TableEntry* array = nullptr;
    uint32_t entries = 0;
  };
  std::vector<User> users(kUsers);
  EntryArrays arrays(kUsers, kLeast, kMost);
  for (uint32_t done = 0; done < kUsers;) {
    const auto number = static_cast<uint32_t>(random.Below(kUsers));
    User& user = users[number];
    if (user.entries == kMost) continue;
    const uint32_t entries = std::max(kLeast, 2 * user.entries);
    TableEntry* const larger = arrays.Take(entries);
    REQUIRE(AllEmpty(larger, entries));
    Fill(larger, entries, number);
    if (user.array != nullptr) {
      REQUIRE(AllAre(user.array, user.entries, number));  // nobody wrote there meanwhile
      arrays.GiveBack(user.array, user.entries);
    }
    user = {larger, entries};
    done += entries == kMost;
  }
  for (uint32_t number = 0; number < kUsers; ++number) {
    CHECK(AllAre(users[number].array, kMost, number));
  }
  CHECK(arrays.used_bytes() <= (kUsers + 1) * kMost * sizeof(TableEntry));
}

TEST_CASE("when all have grown together nothing of what they had before is left over") {
  constexpr uint32_t kUsers = 512;
  EntryArrays arrays(kUsers, 64, 4096);
  std::vector<TableEntry*> held(kUsers);
  for (TableEntry*& array : held) array = arrays.Take(64);
  for (uint32_t entries = 128; entries <= 4096; entries *= 2) {
    for (TableEntry*& array : held) {
      TableEntry* const larger = arrays.Take(entries);
      arrays.GiveBack(array, entries / 2);
      array = larger;
    }
    INFO(entries);
    // One that doubles has both for a moment.
    CHECK(arrays.used_bytes() <= (kUsers + 2) * entries * sizeof(TableEntry));
  }
}

}  // namespace kvkeep::store_internal
