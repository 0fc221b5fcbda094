// Core::Change: a scope around changes to one chunk. Included by core.h, which it belongs to.
#pragma once

#include "tiers/store/core.h"

namespace kvkeep::store_internal {

// A change that may alter whether the chunk can be evicted, or end its life, is made inside a
// Change. When that ends it settles the accounts; from then on the chunk may be gone.
class Core::Change {
 public:
  Change(Core* core, ChunkSlot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(core->mu_);
  ~Change();
  Chunk& operator*() const { return chunk_; }
  Chunk* operator->() const { return &chunk_; }

 private:
  Core* const core_;
  const ChunkSlot slot_;
  Chunk& chunk_;
  const bool was_evictable_;
};

}  // namespace kvkeep::store_internal
