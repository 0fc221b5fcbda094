// ChunksWorld: Chunks (tiers/store/chunks.h) without the rest of a store, for tests of the objects
// above them.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_arena.h"
#include "tests/fakes/seeded_random.h"
#include "tests/sim/payload.h"
#include "tiers/store/change.h"
#include "tiers/store/chunks.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

inline constexpr TenantId kOnlyTenant(0);
inline constexpr uint64_t kImageBlocks = 2;  // a header, and a block of payload

inline StoreOptions OneTenant() {
  StoreOptions options;
  options.max_chunks = 16;
  options.tenants = {{.name = "", .g2_segments = 1}};
  return options;
}

// Writes the header of the image of a chunk of one piece, as it lies beyond the node.
inline void EncodeSharedHeader(const ChunkId& id, const ImageShape& shape, uint64_t checksum,
                               const MacKey& mac_key, HeaderPage page) {
  EncodeHeader({.identity = {.id = id, .shape = shape, .piece_checksums = {checksum}},
                .placement = {.tier = Tier::kG4,
                              .extents = {Extent{BlockNumber(0), shape.blocks()}}}},
               mac_key, page);
}

// Chunks without the rest of a store. G2 has room for eight images, of which four may be used at
// first; reports to other tiers are noted.
class ChunksWorld final : private ChunkHooks {
 public:
  ChunksWorld() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    chunks.pools[0]->limits = {.capacity_blocks = 4 * kImageBlocks};
    chunks.pools[0]->EndRecovery();
  }
  static ChunkId IdOf(uint64_t name) {
    return {NamespaceSpec{}.Digest(""), MakeKey(name), PartId(0)};
  }
  // Makes a chunk that is whole in G2. Returns kNoSlot if there is no space.
  ChunkSlot Add(uint64_t name) {
    Section section(&chunks);
    auto extents = chunks.Allocate(section, kOnlyTenant, kImageBlocks, kNoSlot);
    if (!extents.has_value()) return kNoSlot;
    const ChunkSlot slot = chunks.Create(IdOf(name), {.payload_bytes = kBlockBytes});
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

 public:
  const StoreOptions options = OneTenant();
  ManualClock clock;
  ManualExecutor executor;
  SeededRandom random{1};
  MemoryArena arena{BlockCount(8 * kImageBlocks), BlockCount(8 * kImageBlocks), true};
  StoreDeps deps{
      .clock = &clock, .random = &random, .arena = &arena, .copy_executor = &executor};
  const Owners owners{options.tenants};
  Chunks chunks{options, deps,    Incarnation(7), {Shares::Claim{}, Shares::Claim{.weight = 0}},
                &owners, this};
};

}  // namespace kvkeep::store_internal
