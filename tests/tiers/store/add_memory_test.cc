// A G2 that has a part of its memory at first, and gets the rest while it serves.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tests/tiers/store/warm_world.h"

namespace kvkeep {
namespace {

// This many of the only segment's 64 blocks have memory.
WorldOptions Part(uint64_t there) {
  WorldOptions options = WarmWorld(false);
  options.g2_there = {there};
  return options;
}

// Returns "capacity and to come", in blocks.
std::string Size(const TierSnapshot& tier) {
  return absl::StrCat(tier.capacity_bytes / kBlockBytes, " and ", tier.to_come_bytes / kBlockBytes);
}

// Puts chunks of two blocks each, from `first` on. Returns how many of them G2 holds then.
uint64_t PutTen(StoreTester& s, uint64_t first) {
  uint64_t there = 0;
  for (uint64_t name = first; name < first + 10; ++name) REQUIRE(s.Put(name) == "stored");
  for (uint64_t name = first; name < first + 10; ++name) there += s.Where(name) == "2";
  return there;
}

// Returns how many of ten chunks are leased in one lookup.
uint32_t Leased(StoreTester& s, uint64_t first) {
  std::vector<uint64_t> names;
  for (uint64_t name = first; name < first + 10; ++name) names.push_back(name);
  const LookupResult result = s.Lookup(names);
  REQUIRE(s.Release(result.lease).ok());
  return result.leased_keys;
}

}  // namespace

TEST_CASE("what has no memory yet is given to nobody, and to all once it has") {
  StoreTester s(Part(12));
  CHECK(Size(s.store().snapshot().g2) == "12 and 52");
  CHECK(PutTen(s, 0) == 6);
  s.store().CheckInvariants();
  CHECK(s.store().snapshot().g2.used_bytes == 12 * kBlockBytes);
  CHECK(s.world.AddMemory(6) == 6);
  s.store().CheckInvariants();
  CHECK(Size(s.store().snapshot().g2) == "18 and 46");
  for (uint64_t name = 4; name < 10; ++name) CHECK(s.Get(name) == "hit");  // those of before
  CHECK(PutTen(s, 10) == 9);
  CHECK(s.world.AddMemory(UINT64_MAX) == 46);
  CHECK(s.world.AddMemory(UINT64_MAX) == 0);
  s.store().CheckInvariants();
  CHECK(Size(s.store().snapshot().g2) == "64 and 0");
  CHECK(PutTen(s, 20) == 10);
  for (uint64_t name = 11; name < 20; ++name) CHECK(s.Get(name) == "hit");
  CHECK(s.Put(30, 50 * kBlockBytes) == "stored");
}

TEST_CASE("a store without any memory refuses puts, and takes them when it has some") {
  StoreTester s(Part(0));
  CHECK(Size(s.store().snapshot().g2) == "0 and 64");
  CHECK(s.Put(1) == "limit");
  CHECK(s.Get(1) == "miss");
  CHECK(s.Lookup({1, 2}).leading_keys == 0);
  s.Settle();
  s.store().CheckInvariants();
  s.world.AddMemory(8);
  CHECK(s.Put(1) == "stored");
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("limits of what G2 may hold are smaller while it is, in the same ratio") {
  WorldOptions options = Part(16);
  options.store.max_leased_bytes = 32 * kBlockBytes;
  StoreTester s(options);
  PutTen(s, 0);
  CHECK(Leased(s, 2) == 4);  // eight blocks, of 32 when all is there
  s.world.AddMemory(16);
  PutTen(s, 10);
  CHECK(Leased(s, 10) == 8);
  s.world.AddMemory(32);
  PutTen(s, 20);
  CHECK(Leased(s, 20) == 10);
}

TEST_CASE("a capacity that was lowered holds for the memory that comes, too") {
  StoreTester s(Part(16));
  StoreOptions options = s.store().options();
  options.g2_capacity_bytes = 32 * kBlockBytes;
  REQUIRE(s.store().SetLimits(options).ok());
  CHECK(Size(s.store().snapshot().g2) == "16 and 48");
  s.world.AddMemory(8);
  CHECK(Size(s.store().snapshot().g2) == "24 and 40");
  s.world.AddMemory(40);
  CHECK(Size(s.store().snapshot().g2) == "32 and 0");
  options.g2_capacity_bytes = 64 * kBlockBytes;
  REQUIRE(s.store().SetLimits(options).ok());
  CHECK(Size(s.store().snapshot().g2) == "64 and 0");
}

TEST_CASE("memory that comes is its tenant's, and nobody's when the segment is") {
  WorldOptions options = Part(0);
  options.g2_blocks = 64 * 3;
  options.g2_there = {4, 10, 0};
  options.store.tenants = {{.name = "", .g2_segments = 1}, {.name = "other", .g2_segments = 1}};
  StoreTester s(options);
  const auto sizes = [&s] {
    const StoreSnapshot now = s.store().snapshot();
    return absl::StrCat(Size(now.tenants[0].g2), ", ", Size(now.tenants[1].g2));
  };
  CHECK(sizes() == "4 and 60, 10 and 54");
  s.world.AddMemory(60);
  CHECK(sizes() == "64 and 0, 10 and 54");
  s.world.AddMemory(54 + 30);
  CHECK(sizes() == "64 and 0, 64 and 0");
  s.store().CheckInvariants();
}

TEST_CASE("images in memory that is not there after a restart are not looked at, and are misses") {
  StoreTester s(Part(40));
  for (uint64_t name = 0; name < 10; ++name) REQUIRE(s.Put(name) == "stored");
  REQUIRE(MarkedBlocks(s).size() == 10);
  s.world.Kill();
  s.world.arena().SetThere(0, 7);  // three images, and the header of one more
  s.world.Start();
  s.Connect();
  s.store().CheckInvariants();
  CHECK(s.counters().recovered_g2_chunks == 3);
  CHECK(s.counters().recovery_dropped_g2_chunks == 7);
  CHECK(MarkedBlocks(s).size() == 3);
  uint64_t hits = 0;
  for (uint64_t name = 0; name < 10; ++name) hits += s.Get(name) == "hit";
  CHECK(hits == 3);
  s.world.AddMemory(UINT64_MAX);
  s.store().CheckInvariants();
  CHECK(s.store().snapshot().g2.used_bytes == 6 * kBlockBytes);
  for (uint64_t name = 0; name < 10; ++name) CHECK(s.Put(name) != "no space");
}

}  // namespace kvkeep
