// ChunkHooks: what else happens in a store when a chunk changes. Chunks (chunks.h) tells it; the
// owners of the other tiers implement it.
//
// Called under the store's lock, inside the change itself: a hook changes that chunk no further
// than its comment says.
#pragma once

#include "tiers/store/chunk_table.h"
#include "tiers/store/store_lock.h"

namespace kvkeep::store_internal {

class ChunkHooks {
 public:
  // Its copy in G2, which an earlier process left, is about to be pinned: begins to verify it.
  virtual void Verify(ChunkSlot slot) STORE_LOCKED = 0;
  // It is not found any more. Takes it out of G3's order, and out of the queue for its write.
  virtual void OnDetached(Chunk& chunk, ChunkSlot slot) STORE_LOCKED = 0;
  // It is detached, stored in G3 and not being read there: takes it out of G3.
  virtual void LeaveG3(Chunk& chunk, ChunkSlot slot) STORE_LOCKED = 0;
  // It has left every tier without being detached: may give it a record in G3 that it had before.
  virtual void OnHomeless(ChunkSlot slot) STORE_LOCKED = 0;
  // A change of it ends.
  virtual void OnChanged(Chunk& chunk) STORE_LOCKED = 0;
  // Its slot is about to be freed.
  virtual void OnGone(const Chunk& chunk, ChunkSlot slot) STORE_LOCKED = 0;

 protected:
  ~ChunkHooks() = default;
};

}  // namespace kvkeep::store_internal
