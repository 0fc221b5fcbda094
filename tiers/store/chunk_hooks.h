// ChunkHooks: the interface by which Chunks (chunks.h) tells the rest of a store that a chunk
// changes. StoreParts implements it.
//
// The hooks are called under the store's lock, inside the change itself. A hook changes the chunk
// no further than its comment says.
#pragma once

#include "tiers/store/chunk_table.h"
#include "tiers/store/store_lock.h"

namespace kvkeep::store_internal {

class ChunkHooks {
 public:
  // The chunk's copy in G2, which an earlier process left, is about to be pinned. Begins to verify
  // it.
  virtual void Verify(ChunkSlot slot) STORE_LOCKED = 0;
  // The chunk is not found any more. Takes it out of G3's order, and out of the queue for its
  // write.
  virtual void OnDetached(Chunk& chunk, ChunkSlot slot) STORE_LOCKED = 0;
  // The chunk is detached, stored in G3 and not being read there. Takes it out of G3.
  virtual void LeaveG3(Chunk& chunk, ChunkSlot slot) STORE_LOCKED = 0;
  // The chunk has left every tier and is not detached. May give it an earlier record in G3 back.
  virtual void OnHomeless(ChunkSlot slot) STORE_LOCKED = 0;
  // A change of the chunk ends.
  virtual void OnChanged(Chunk& chunk) STORE_LOCKED = 0;
  // The chunk's slot is about to be freed.
  virtual void OnGone(const Chunk& chunk, ChunkSlot slot) STORE_LOCKED = 0;

 protected:
  ~ChunkHooks() = default;
};

}  // namespace kvkeep::store_internal
