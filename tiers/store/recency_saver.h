// RecencySaver: saves the order of eviction of each device's chunks now and then, for the next
// start.
//
// Only what changed since the last save (unsaved_recency.h), one save of a device at a time:
// nothing is written at rest, and nothing queues up where an index hangs. What policies have
// learned is saved with it.
//
// Owned by Disk (disk.h). The store's lock protects it.
#pragma once

#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/learned_state.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class RecencySaver {
 public:
  // All are borrowed.
  RecencySaver(Chunks* chunks, DeviceTiers* tiers, LearnedState* learned, const Clock* clock);

  // Both hand what changed to the device's index executor. They may yield. REQUIRES: the device is
  // here.
  void SaveIfDue(Section& section, DeviceTier& tier) STORE_LOCKED;
  void Save(Section& section, DeviceTier& tier) STORE_LOCKED;

 private:
  struct Batches;
  void OnSaved(DeviceTier& tier, const Batches& save);

  Chunks& chunks_;
  DeviceTiers& tiers_;
  LearnedState& learned_;
  const Clock& clock_;
};

}  // namespace kvkeep::store_internal
