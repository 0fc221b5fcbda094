// Chunks by themselves: a chunk's life in G2, and what other tiers hear of it.
#include "tiers/store/chunks.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/tiers/store/chunks_world.h"

namespace kvkeep::store_internal {
namespace {

using ToldTiers = std::vector<std::string>;

}  // namespace

TEST_CASE("a chunk ends when no tier has it, and other tiers are told before its slot is free") {
  ChunksWorld world;
  const ChunkSlot slot = world.Add(1);
  REQUIRE(world.size() == 1);
  {
    Section section(&world.chunks);
    CHECK(world.chunks.EvictOne(world.chunks.pool(kOnlyTenant)) == Evicted::kOne);
    CHECK_FALSE(world.chunks.table.at(slot).live);
    CHECK(world.chunks.EvictOne(world.chunks.pool(kOnlyTenant)) == Evicted::kNone);
    CHECK(world.chunks.pool(kOnlyTenant).used_blocks() == 0);
    CHECK(world.chunks.pool(kOnlyTenant).chunks == 0);
  }
  CHECK(world.size() == 0);
  CHECK(world.TakeTold() == ToldTiers{"homeless", "gone"});
}

TEST_CASE("a chunk that leaves G2 lives on where another tier gives it a place") {
  ChunksWorld world;
  world.gives_home = true;
  const ChunkSlot slot = world.Add(1);
  {
    Section section(&world.chunks);
    CHECK(world.chunks.EvictOne(world.chunks.pool(kOnlyTenant)) == Evicted::kOne);
    CHECK(world.chunks.table.at(slot).live);
  }
  CHECK(world.TakeTold() == ToldTiers{"homeless"});
  {
    Section section(&world.chunks);
    world.chunks.Detach(slot);
  }
  CHECK(world.TakeTold() == ToldTiers{"detached", "leave G3", "gone"});
  CHECK(world.size() == 0);
}

TEST_CASE("a detached chunk keeps its space while it is pinned, and is not found") {
  ChunksWorld world;
  const ChunkSlot slot = world.Add(1);
  Section section(&world.chunks);
  Chunks& chunks = world.chunks;
  chunks.Pin(slot);
  chunks.Pin(slot);
  CHECK(chunks.pool(kOnlyTenant).pinned_blocks == kImageBlocks);  // counted once
  chunks.Detach(slot);
  CHECK(chunks.table.Find(chunks.table.at(slot).id) == kNoSlot);
  CHECK(chunks.pool(kOnlyTenant).used_blocks() == kImageBlocks);
  chunks.Unpin(slot);
  CHECK(chunks.table.at(slot).live);
  chunks.Unpin(slot);
  CHECK_FALSE(chunks.table.at(slot).live);
  CHECK(chunks.pool(kOnlyTenant).used_blocks() == 0);
  CHECK(chunks.pool(kOnlyTenant).pinned_blocks == 0);
}

TEST_CASE("a pinned chunk is not evicted, and nothing is for a request that cannot be met") {
  ChunksWorld world;
  std::vector<ChunkSlot> slots;
  for (uint64_t name = 1; name <= 4; ++name) slots.push_back(world.Add(name));
  REQUIRE(slots.back() != kNoSlot);
  Section section(&world.chunks);
  Chunks& chunks = world.chunks;
  chunks.Pin(slots[0]);
  CHECK_FALSE(chunks.Allocate(section, kOnlyTenant, 4 * kImageBlocks, kNoSlot).has_value());
  CHECK(chunks.table.size() == 4);
  const auto extents = chunks.Allocate(section, kOnlyTenant, 3 * kImageBlocks, kNoSlot);
  REQUIRE(extents.has_value());
  CHECK(chunks.table.size() == 1);
  CHECK(chunks.table.at(slots[0]).live);
  CHECK(chunks.counters.g2_evictions == 3);
  chunks.pool(kOnlyTenant).Free(*extents);
  chunks.Unpin(slots[0]);
}

TEST_CASE("what an earlier process left is verified before it is pinned") {
  ChunksWorld world;
  Section section(&world.chunks);
  Chunks& chunks = world.chunks;
  const ChunkSlot slot = chunks.Create(ChunksWorld::IdOf(1), {.payload_bytes = kBlockBytes});
  auto extents = chunks.Allocate(section, kOnlyTenant, kImageBlocks, kNoSlot);
  {
    Change chunk(&chunks, slot);
    chunk->g2 = *std::move(extents);
    chunks.SetG2State(*chunk, G2State::kUnverified);
    chunks.InsertIntoPolicy(slot, kNoSlot);
  }
  chunks.Pin(slot);
  CHECK(chunks.table.at(slot).g2_state == G2State::kVerifying);
  chunks.Pin(slot);
  CHECK(world.TakeTold() == ToldTiers{"verify"});
}

TEST_CASE("tasks of a hold run once the lock is let go of, in their order") {
  ChunksWorld world;
  std::string ran;
  {
    Section section(&world.chunks);
    world.chunks.Later([&ran, &world] {
      ran += "a";
      Section again(&world.chunks);  // the lock is free
    });
    world.chunks.Later([&ran] { ran += "b"; });
    CHECK(ran.empty());
    section.Yield();
    CHECK(ran == "ab");
    world.chunks.Later([&ran] { ran += "c"; });
    CHECK(ran == "ab");
  }
  CHECK(ran == "abc");
}

}  // namespace kvkeep::store_internal
