#include "tiers/store/chunk_table.h"

#include <bit>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint64_t kChunksPerShard = 1024;

}  // namespace

ChunkTable::ChunkTable(uint64_t max_chunks, uint64_t hash_seed)
    : max_chunks_(max_chunks), hash_{.seed = hash_seed} {
  KVKEEP_CHECK(max_chunks > 0 && max_chunks < kNoSlot.value());
  // At least two shards, so that the shift below stays inside the word.
  const uint64_t shards = std::bit_ceil(std::max<uint64_t>(2, max_chunks / kChunksPerShard));
  shard_shift_ = 64 - std::countr_zero(shards);
  shards_.reserve(shards);
  for (uint64_t i = 0; i < shards; ++i) shards_.emplace_back(0, Hash{this}, Equal{this});
}

ChunkSlot ChunkTable::Find(const ChunkId& id) const {
  const Shard& set = shard(id);
  const auto found = set.find(id);
  return found == set.end() ? kNoSlot : ChunkSlot(*found);
}

ChunkSlot ChunkTable::Create(const ChunkId& id, const ImageShape& shape) {
  if (full()) return kNoSlot;
  uint32_t slot = slot_end_;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else {
    if (slot_end_ % kSlabChunks == 0) slabs_.push_back(std::make_unique<Chunk[]>(kSlabChunks));
    ++slot_end_;
  }
  Chunk& chunk = at(ChunkSlot(slot));
  KVKEEP_CHECK(!chunk.live);
  chunk = Chunk{};
  chunk.id = id;
  chunk.shape = shape;
  chunk.live = true;
  KVKEEP_CHECK(shard(id).insert(slot).second);
  ++size_;
  return ChunkSlot(slot);
}

void ChunkTable::Detach(ChunkSlot slot) {
  Chunk& chunk = at(slot);
  KVKEEP_CHECK(chunk.live && !chunk.detached);
  KVKEEP_CHECK(shard(chunk.id).erase(slot.value()) == 1);
  chunk.detached = true;
}

void ChunkTable::Destroy(ChunkSlot slot) {
  if (!at(slot).detached) Detach(slot);
  at(slot) = Chunk{};
  free_slots_.push_back(slot.value());
  --size_;
}

}  // namespace kvkeep::store_internal
