// ScrubReader: reads and checks chunks that only G3 holds, in turn, so many bytes a second, so that
// what has rotted there is found before somebody wants it. Which chunk is next Scrubber says.
//
// One at a time, as a promotion of a transient chunk that nobody waits for: what a promotion checks
// is checked, its damage is dealt with as there, and its space in G2 is given back at once. It may
// cost G2 the least wanted of its chunks, one chunk's worth of space. What is in G2 as well is left
// for a later round, as is what cannot be read now. What a tenant left that is no more has no space
// in G2 and no reader: it is passed by and counted, and goes first when space is wanted (shares.h).
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
