// Promoter: brings a chunk of G3 into G2.
//
// Takes space in its tenant's pool and has the image read (promotions.h). If nobody wants the chunk
// any more while its promotion waits for its turn, the image is read all the same. Owns nothing;
// the store's lock protects what it changes.
#pragma once

#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/promotions.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class Promoter {
 public:
  // All are borrowed.
  Promoter(Chunks* chunks, DeviceTiers* tiers, Promotions* promotions)
      : chunks_(*chunks), tiers_(*tiers), promotions_(*promotions) {}

  // Makes sure that the chunk is in G2 or on its way there. Returns false if there is no space, as
  // always for Nobody's chunks, or if the chunk went during a yield. May yield. `parent`: kNoSlot,
  // or a chunk that the caller has pinned. `tenant` owns the chunk.
  bool EnsureInG2(Section& section, const ReadQueue::Requester& requester, TenantId tenant,
                  ChunkSlot slot, ChunkSlot parent, bool transient) STORE_LOCKED;

 private:
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Promotions& promotions_;
};

}  // namespace kvkeep::store_internal
