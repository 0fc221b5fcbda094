// LearnedState: what policies of eviction have learned, kept over a restart beside the records of
// each device.
//
// Named values of the index, "learned.TIER.TAG" with the tenant's tag in hex, version 1: u8
// version, XXH3-64 of the rest (little-endian), then what the policy said. What G2's policies
// learned is kept on every device, and taken from the first that has it. What cannot be read, is
// damaged, or of another version or policy, begins anew: only hits suffer.
//
// Owned by Disk (disk.h). The store's lock protects what it loads and saves.
#pragma once

#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/device_tier.h"

namespace kvkeep::store_internal {

class LearnedState {
 public:
  // All are borrowed.
  LearnedState(const std::vector<TenantOptions>& tenants, Chunks* chunks);

  // Loads what a device that joins has saved. Takes the lock.
  void Load(DeviceTier& tier);
  // Hands what changed to the device's index executor.
  void Save(DeviceTier& tier) STORE_LOCKED;

 private:
  void OnSaved(DeviceTier& tier);

  const std::vector<TenantOptions>& tenants_;
  Chunks& chunks_;
};

}  // namespace kvkeep::store_internal
