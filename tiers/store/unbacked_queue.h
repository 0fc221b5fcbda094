// UnbackedQueue: chunks of one tenant that G2 alone holds and that G3 is to have as soon as there
// is room in the dirty budget; who came first is first, so the heads of prefixes are.
//
// A list through the chunks themselves: it takes no memory of its own, and a chunk that leaves G2
// is out of it at once. The core's lock protects it.
#pragma once

#include "tiers/base/check.h"
#include "tiers/store/chunk_table.h"

namespace kvkeep::store_internal {

class UnbackedQueue {
 public:
  // REQUIRES: the chunk waits in none.
  void Push(ChunkTable& table, ChunkSlot slot) {
    Chunk& chunk = table.at(slot);
    KVKEEP_CHECK(!chunk.waits_unbacked);
    chunk.waits_unbacked = true;
    chunk.unbacked_before = last_;
    chunk.unbacked_after = kNoSlot;
    (last_ == kNoSlot ? first_ : table.at(last_).unbacked_after) = slot;
    last_ = slot;
    ++chunks_;
    blocks_ += chunk.blocks();
  }
  // REQUIRES: it waits in this one.
  void Remove(ChunkTable& table, ChunkSlot slot) {
    Chunk& chunk = table.at(slot);
    KVKEEP_CHECK(chunk.waits_unbacked && chunks_ > 0);
    chunk.waits_unbacked = false;
    const ChunkSlot before = chunk.unbacked_before, after = chunk.unbacked_after;
    (before == kNoSlot ? first_ : table.at(before).unbacked_after) = after;
    (after == kNoSlot ? last_ : table.at(after).unbacked_before) = before;
    --chunks_;
    blocks_ -= chunk.blocks();
  }

  ChunkSlot first() const { return first_; }  // kNoSlot: nobody waits
  uint64_t chunks() const { return chunks_; }
  uint64_t blocks() const { return blocks_; }

 private:
  ChunkSlot first_ = kNoSlot, last_ = kNoSlot;
  uint64_t chunks_ = 0, blocks_ = 0;
};

}  // namespace kvkeep::store_internal
