// Change: a scope around changes to one chunk.
#pragma once

#include "tiers/store/chunks.h"

namespace kvkeep::store_internal {

// A change that may alter whether the chunk can be evicted, or end its life, is made inside a
// Change. When that ends it settles the accounts; from then on the chunk may be gone.
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
