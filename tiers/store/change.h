// Change: a scope around changes to one chunk.
#pragma once

#include "tiers/store/chunks.h"

namespace kvkeep::store_internal {

// Code opens a Change around each change that may make the chunk evictable or not, or end its life.
// The end of the Change settles the accounts. From then on the chunk may be gone.
class Change {
 public:
  Change(Chunks* chunks, ChunkSlot slot) STORE_LOCKED;
  ~Change();
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  Chunk& operator*() const { return chunk_; }
  Chunk* operator->() const { return &chunk_; }

 private:
  Chunks& chunks_;
  const ChunkSlot slot_;
  Chunk& chunk_;
  const bool was_evictable_;
};

}  // namespace kvkeep::store_internal
