// LearnedState: what policies of eviction have learned, kept over a restart beside the records of
// each device.
//
// Named values of the index, "learned.TIER.TAG" with the tenant's tag in hex, version 1: u8
// version, XXH3-64 of the rest (little-endian), then what the policy said. What G2's policies
// learned is kept on every device, and taken from the first that has it. What cannot be read, is
// damaged, or of another version or policy, begins anew: only hits suffer.
// What a tenant's policies of G3 learned is learned for all devices, and kept on every one, too.
//
// Owned by Disk (disk.h).
#pragma once

#include <string>
#include <vector>

#include "tiers/policy/chain_learner.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"

namespace kvkeep::store_internal {

class LearnedState {
 public:
  // All are borrowed.
  LearnedState(const std::vector<TenantOptions>& tenants, Chunks* chunks, DeviceTiers* tiers);

  // Loads what a device that joins has saved, where no device was loaded from before. Takes the
  // lock.
  void Load(DeviceTier& tier);
  // Hands what changed to the device's index executor.
  void Save(DeviceTier& tier) STORE_LOCKED;

 private:
  // A learner, and the name under which what it has learned is kept.
  struct Named {
    std::string name;
    ChainLearner* learner;
    bool loaded = false;
  };
  void OnSaved(DeviceTier& tier);

  Chunks& chunks_;
  std::vector<Named> learners_ STORE_GUARDED;  // which and their names are constant
};

}  // namespace kvkeep::store_internal
