// Chunks by themselves: a chunk's life in G2, and what other tiers are told of it.
#include "tiers/store/chunks.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_arena.h"
#include "tests/fakes/seeded_random.h"
#include "tests/sim/payload.h"
#include "tiers/store/change.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {
namespace {

constexpr TenantId kOnlyTenant(0);
constexpr uint64_t kImageBlocks = 2;  // a header, and a block of payload

ChunkId ChunkNamed(uint64_t name) { return {NamespaceSpec{}.Digest(""), MakeKey(name), PartId(0)}; }

StoreOptions OneTenant() {
  StoreOptions options;
  options.max_chunks = 16;
  options.tenants = {{.name = "", .g2_segments = 1}};
  return options;
}

// Room for four images in G2; what is told to other tiers is noted.
class ChunksWorld final : private ChunkHooks {
 public:
  ChunksWorld() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    chunks.pools[0]->limits = {.capacity_blocks = 4 * kImageBlocks};
    chunks.pools[0]->EndRecovery();
  }
  // A chunk that is whole in G2. kNoSlot: there is no space.
  ChunkSlot Add(uint64_t name) {
    Section section(&chunks);
    auto extents = chunks.Allocate(section, kOnlyTenant, kImageBlocks, kNoSlot);
    if (!extents.has_value()) return kNoSlot;
    const ChunkSlot slot = chunks.Create(ChunkNamed(name), {.payload_bytes = kBlockBytes});
    Change chunk(&chunks, slot);
    chunk->g2 = *std::move(extents);
    chunks.SetG2State(*chunk, G2State::kResident);
    chunks.InsertIntoPolicy(slot, kNoSlot);
    return slot;
  }
  std::vector<std::string> TakeTold() { return std::exchange(told_, {}); }
  uint64_t size() {
    Section section(&chunks);
    CHECK(chunks.slot_shares.held(kOnlyTenant) == chunks.table.size());
    return chunks.table.size();
  }

  bool gives_home = false;  // a record in G3 is kept of each chunk

 private:
  void Verify(ChunkSlot slot) override STORE_LOCKED {
    told_.push_back("verify");
    chunks.SetG2State(chunks.table.at(slot), G2State::kVerifying);
  }
  void OnDetached(Chunk&, ChunkSlot) override { told_.push_back("detached"); }
  void LeaveG3(Chunk& chunk, ChunkSlot) override {
    told_.push_back("leave G3");
    chunk.g3_state = G3State::kAbsent;
  }
  void OnHomeless(ChunkSlot slot) override STORE_LOCKED {
    told_.push_back("homeless");
    if (gives_home) chunks.table.at(slot).g3_state = G3State::kStored;
  }
  void OnChanged(Chunk&) override {}
  void OnGone(const Chunk&, ChunkSlot) override { told_.push_back("gone"); }

  std::vector<std::string> told_;
  ManualClock clock_;
  SeededRandom random_{1};
  MemoryArena arena_{BlockCount(16), BlockCount(16)};
  const StoreOptions options_ = OneTenant();
  const Owners owners_{options_.tenants};

 public:
  Chunks chunks{options_,
                {.clock = &clock_, .random = &random_, .arena = &arena_},
                Incarnation(7),
                {Shares::Claim{}, Shares::Claim{.weight = 0}},
                &owners_,
                this};
};

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
  const ChunkSlot slot = chunks.Create(ChunkNamed(1), {.payload_bytes = kBlockBytes});
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
