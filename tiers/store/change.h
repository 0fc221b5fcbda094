// Core::Change: a scope around changes to one chunk. Included by core.h, which it belongs to.
#pragma once

#include "tiers/store/core.h"

namespace kvkeep::store_internal {

// Any change that may alter what can be evicted, or end the chunk's life, is in one. It settles the
// accounts as it ends: then the chunk may be gone.
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
