// RecencySaver: saves the order of eviction of each device's chunks now and then, for the next
// start.
//
// It saves only what changed since the last save (unsaved_recency.h), one save of a device at a
// time. So nothing is written at rest, and nothing queues up if an index hangs. It also saves what
// policies have learned.
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

  // Both hand the changes to the device's index executor. They may yield. REQUIRES: the device is
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
