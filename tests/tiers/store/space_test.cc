// A put evicts what lies where it will lie: beside chunks of another size it evicts little more
// than its own bytes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

constexpr uint64_t kFirstLarge = 1'000'000;  // names of large chunks

struct Put {
  size_t small_bytes, large_bytes;
};

WorldOptions Space(uint64_t g2_bytes, uint64_t g3_bytes) {
  WorldOptions options = SmallWorld();
  options.g2_blocks = g2_bytes / kBlockBytes;
  options.g2_segment_blocks = options.g2_blocks;
  options.device_blocks.clear();
  if (g3_bytes > 0) options.device_blocks = {g3_bytes / kBlockBytes};
  options.store.max_chunks = 16'384;
  options.store.dirty_budget_bytes = 0;
  options.store.max_reserved_bytes = 0;
  options.store.max_leased_bytes = 0;
  return options;
}

uint64_t ImageBytes(size_t payload) {
  return ImageShape{.payload_bytes = static_cast<uint32_t>(payload)}.blocks().value() * kBlockBytes;
}

// Touches chunks so that the order of eviction is unrelated to their places.
void TouchAtRandom(StoreTester& s, uint64_t names, uint32_t seed) {
  std::vector<uint64_t> order(names);
  for (uint64_t i = 0; i < names; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  for (const uint64_t name : order) s.Touch({name});
}

// Returns how many bytes of small chunks that fill G2 a large put evicts, as a multiple of its own.
double CostInG2(const Put& put) {
  constexpr uint64_t kG2 = 64 * kMiB;
  StoreTester s(Space(kG2, 0));
  const uint64_t fits = kG2 / ImageBytes(put.small_bytes);
  for (uint64_t name = 0; name < fits; ++name) REQUIRE(s.Put(name, put.small_bytes) == "stored");
  REQUIRE(s.counters().g2_evictions == 0);
  TouchAtRandom(s, fits, 1);
  REQUIRE(s.Put(kFirstLarge, put.large_bytes) == "stored");
  CHECK(s.Get(kFirstLarge) == "hit");
  s.store().CheckInvariants();
  return static_cast<double>(s.counters().g2_evictions * ImageBytes(put.small_bytes)) /
         static_cast<double>(ImageBytes(put.large_bytes));
}

}  // namespace

TEST_CASE("a large put among small chunks evicts little more than its own bytes from G2") {
  for (const Put& put : {Put{56 * kKiB, kMiB}, Put{56 * kKiB, 4 * kMiB}, Put{56 * kKiB, 8 * kMiB},
                         Put{246 * kKiB, 4 * kMiB}, Put{4 * kKiB, kMiB}}) {
    const double cost = CostInG2(put);
    INFO("chunks of " << put.small_bytes << ", a put of " << put.large_bytes << ": " << cost);
    CHECK(cost >= 0.9);
    CHECK(cost <= 1.5);
  }
}

TEST_CASE("durable large puts among small chunks evict little more than their own bytes from G3") {
  constexpr uint64_t kG3 = 75 * kMiB;
  constexpr size_t kSmall = 56 * kKiB, kLarge = 4 * kMiB;
  StoreTester s(Space(32 * kMiB, kG3));
  uint64_t names = 0;
  while (s.counters().g3_evictions == 0) {
    REQUIRE(s.Put(names++, kSmall, {.durable = true}) == "stored");
    s.Settle();
  }
  TouchAtRandom(s, names, 2);
  const uint64_t before = s.counters().g3_evictions;
  for (uint64_t i = 0; i < 4; ++i) {
    REQUIRE(s.Put(kFirstLarge + i, kLarge, {.durable = true}) == "stored");
    s.Settle();
    CHECK(s.Durable(kFirstLarge + i) == "ok");
  }
  const double evicted =
      static_cast<double>((s.counters().g3_evictions - before) * ImageBytes(kSmall));
  const double cost = evicted / static_cast<double>(4 * ImageBytes(kLarge));
  INFO(cost);
  CHECK(cost <= 1.5);
  s.store().CheckInvariants();
  s.KillAndStart();
  for (uint64_t i = 0; i < 4; ++i) CHECK(s.Get(kFirstLarge + i) == "hit");
}

// Puts a large chunk among small ones that fill G2, every so many of them leased; their order of
// eviction is drawn.
void PutAmongLeased(uint32_t hold_work, size_t every) {
  constexpr size_t kSmall = 56 * kKiB, kLarge = 2 * kMiB;
  WorldOptions options = Space(32 * kMiB, 0);
  options.hold_work = hold_work;
  StoreTester s(options);
  const uint64_t fits = 32 * kMiB / ImageBytes(kSmall);
  for (uint64_t name = 0; name < fits; ++name) REQUIRE(s.Put(name, kSmall) == "stored");
  TouchAtRandom(s, fits, 5);
  std::vector<uint64_t> leased;
  for (uint64_t name = 0; name < fits; name += every) leased.push_back(name);
  for (const uint64_t name : leased) REQUIRE(s.Lookup({name}).leased_keys == 1);
  // Leased chunks are the first in line, until they turn out to be stuck.
  std::vector<uint64_t> others;
  for (uint64_t name = 0; name < fits; ++name) {
    if (name % every != 0) others.push_back(name);
  }
  std::shuffle(others.begin(), others.end(), std::mt19937(6));
  for (const uint64_t name : others) s.Touch({name});
  REQUIRE(s.Put(kFirstLarge, kLarge) == "stored");
  const double cost = static_cast<double>(s.counters().g2_evictions * ImageBytes(kSmall)) /
                      static_cast<double>(ImageBytes(kLarge));
  INFO("holds of " << hold_work << ", every " << every << "th leased: " << cost);
  CHECK(cost <= 1.8);
  for (const uint64_t name : leased) CHECK(s.Where(name) == "2");
  s.store().CheckInvariants();
}

TEST_CASE("a large put passes by what is leased, however much of it is next in line") {
  PutAmongLeased(0, 6);
  PutAmongLeased(1, 6);  // each step in a hold of its own
  PutAmongLeased(40, 40);
}

TEST_CASE("a capacity that was made smaller is no reason to empty a part of G2") {
  constexpr size_t kSmall = 56 * kKiB, kLarge = 4 * kMiB;
  StoreTester s(Space(64 * kMiB, 0));
  for (uint64_t name = 0; name < 300; ++name) REQUIRE(s.Put(name, kSmall) == "stored");
  StoreOptions limits = s.store().options();
  limits.g2_capacity_bytes = 300 * ImageBytes(kSmall);
  REQUIRE(s.store().SetLimits(limits).ok());
  REQUIRE(s.Put(kFirstLarge, kLarge) == "stored");
  CHECK(s.counters().g2_windows_emptied == 0);
  // The oldest went, and no more than necessary.
  const uint64_t gone = (ImageBytes(kLarge) + ImageBytes(kSmall) - 1) / ImageBytes(kSmall);
  for (uint64_t name = 0; name < 300; ++name) CHECK(s.Where(name).empty() == (name < gone));
}

TEST_CASE("two geometries in one tenant, for long: G2 stays as full as with one") {
  constexpr size_t kSmall = 56 * kKiB, kLarge = 4 * kMiB;
  constexpr uint64_t kG2 = 32 * kMiB;
  constexpr int kWarmUp = 20, kRounds = 60;
  StoreTester s(Space(kG2, 0));
  std::mt19937 random(3);
  uint64_t names = 0, large = 0, used = 0;
  for (int round = 0; round < kWarmUp + kRounds; ++round) {
    for (int i = 0; i < 60; ++i) {
      REQUIRE(s.Put(names++, kSmall) == "stored");
      s.Touch({names - 1 - random() % std::min<uint64_t>(names, 600)});
    }
    REQUIRE(s.Put(kFirstLarge + large++, kLarge) == "stored");
    if (round >= kWarmUp) used += s.store().snapshot().g2.used_bytes;
  }
  const double full = static_cast<double>(used) / static_cast<double>(kRounds * kG2);
  INFO(full);
  CHECK(full >= 0.95);
  s.store().CheckInvariants();
}

}  // namespace kvkeep
