// Trimmer: evicts the chunks above limits, of tenants and of both tiers, that have become smaller.
//
// A chunk that cannot be evicted now, as it is leased or being written, is evicted at a later call.
// DeviceTiers says whether chunks may be above a limit (over_quota, over_capacity). Owned by Disk
// (disk.h). The store's lock protects it.
#pragma once

#include "tiers/store/chunks.h"
#include "tiers/store/device_space.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class Trimmer {
 public:
  // All are borrowed.
  Trimmer(Chunks* chunks, DeviceTiers* tiers, DeviceSpace* space)
      : chunks_(*chunks), tiers_(*tiers), space_(*space) {}

  // Notes that a limit, or the amount that it limits, may have changed.
  void NoteChanged() STORE_LOCKED { tiers_.over_quota = tiers_.over_capacity = true; }
  // Evicts the chunks above the limits that can go. May yield.
  void Trim(Section& section) STORE_LOCKED;
  bool at_rest() const STORE_LOCKED { return !tiers_.over_quota && !tiers_.over_capacity; }

 private:
  void TrimToQuotas(Section& section) STORE_LOCKED;
  void TrimToCapacities(Section& section) STORE_LOCKED;

  Chunks& chunks_;
  DeviceTiers& tiers_;
  DeviceSpace& space_;
};

}  // namespace kvkeep::store_internal
