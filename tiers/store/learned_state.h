// LearnedState: keeps what eviction policies have learned over a restart, in the index of each
// device.
//
// It uses named values of the index, "learned.TIER.TAG" with the tenant's tag in hex. Version 1: u8
// version, XXH3-64 of the rest (little-endian), then the policy's own bytes. Every device keeps the
// values of G2's policies, and a start takes them from the first device that has them. A tenant's
// policies of G3 learn for all devices, and every device keeps their values, too. If a value cannot
// be read, is damaged or is of another version, the policy begins anew: only hits suffer.
// "reuse" and "seconds" learn the same.
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

  // Loads the values of a device that joins, into learners that have loaded none before. Takes the
  // lock.
  void Load(DeviceTier& tier);
  // Hands the values that changed to the device's index executor.
  void Save(DeviceTier& tier) STORE_LOCKED;

 private:
  // A learner, and the name of its value.
  struct Named {
    std::string name;
    ChainLearner* learner;
    bool loaded = false;
  };
  void OnSaved(DeviceTier& tier);

  Chunks& chunks_;
  std::vector<Named> learners_ STORE_GUARDED;  // the entries and names are constant
};

}  // namespace kvkeep::store_internal
