// ScrubReader: reads and checks, one after the other and at a limited rate, the chunks that only G3
// has. So damage is found before somebody wants the chunk. Scrubber says which chunk is next.
//
// A scrub is the promotion of a transient chunk that nobody waits for, one chunk at a time. It
// makes the checks of a promotion and handles damage like one. Its space in G2 is given back at
// once. For this space G2 may lose the chunks that it wants least. A chunk that is in G2 as well,
// or that cannot be read now, is left for a later round. Chunks of a tenant that is not configured
// any more have no space in G2 and no reader. They are skipped and counted, and are evicted first
// when space is wanted (shares.h).
//
// The store's lock protects it.
#pragma once

#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/promoter.h"
#include "tiers/store/promotions.h"
#include "tiers/store/records.h"
#include "tiers/store/scrubber.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class ScrubReader {
 public:
  // All are borrowed.
  ScrubReader(Chunks* chunks, DeviceTiers* tiers, const Records* records, Scrubber* scrubber,
              Promoter* promoter, Promotions* promotions);

  // Begins to read the next chunk, if one may be read now. May yield.
  void Next(Section& section) STORE_LOCKED;

 private:
  void Read(Section& section, ChunkSlot slot) STORE_LOCKED;
  void OnRead(ChunkSlot slot, const ChunkId& id, bool transient, const absl::Status& status);

  Chunks& chunks_;
  DeviceTiers& tiers_;
  const Records& records_;
  Scrubber& scrubber_;
  Promoter& promoter_;
  Promotions& promotions_;
};

}  // namespace kvkeep::store_internal
