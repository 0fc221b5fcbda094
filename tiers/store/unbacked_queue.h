// UnbackedQueue: the chunks of one tenant that only G2 has, and that are written to G3 as soon as
// there is room in the dirty budget. They are in the order of arrival, so heads of prefixes come
// first.
//
// Most chunks are in no queue, so the fields of a waiting chunk are here and not in Chunk. The
// store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>

#include "tiers/base/check.h"
#include "tiers/store/chunk_table.h"

namespace kvkeep::store_internal {

class UnbackedQueue {
 public:
  // Adds a chunk. It is to be written near `parent`, whose slot may be another chunk's by then.
  // REQUIRES: the chunk waits in no queue.
  void Push(ChunkTable& table, ChunkSlot slot, ChunkSlot parent) {
    Chunk& chunk = table.at(slot);
    KVKEEP_CHECK(!chunk.waits_unbacked);
    chunk.waits_unbacked = true;
    const uint64_t turn = next_turn_++;
    turns_.emplace(turn, slot);
    KVKEEP_CHECK(waiting_.emplace(slot, Waiting{turn, parent}).second);
    blocks_ += chunk.blocks();
  }
  // Removes the chunk. Returns its parent. REQUIRES: the chunk waits in this queue.
  ChunkSlot Remove(ChunkTable& table, ChunkSlot slot) {
    Chunk& chunk = table.at(slot);
    const auto found = waiting_.find(slot);
    KVKEEP_CHECK(chunk.waits_unbacked && found != waiting_.end());
    chunk.waits_unbacked = false;
    const ChunkSlot parent = found->second.parent;
    KVKEEP_CHECK(turns_.erase(found->second.turn) == 1 && blocks_ >= chunk.blocks());
    waiting_.erase(found);
    blocks_ -= chunk.blocks();
    return parent;
  }

  // Returns the first chunk; kNoSlot: none waits.
  ChunkSlot first() const { return turns_.empty() ? kNoSlot : turns_.begin()->second; }
  uint64_t chunks() const { return waiting_.size(); }
  uint64_t blocks() const { return blocks_; }
  bool Has(ChunkSlot slot) const { return waiting_.contains(slot); }

 private:
  struct Waiting {
    uint64_t turn;
    ChunkSlot parent;
  };
  absl::btree_map<uint64_t, ChunkSlot> turns_;
  absl::btree_map<ChunkSlot, Waiting> waiting_;
  uint64_t next_turn_ = 0, blocks_ = 0;
};

}  // namespace kvkeep::store_internal
