// Limits: the options that may change while the store runs. It computes each tenant's limits, and
// brings what is held already within new ones.
//
// Owns the options in effect. The store's lock protects it; a method without STORE_LOCKED takes the
// lock.
#pragma once

#include <memory>
#include <vector>

#include "tiers/store/beyond_node.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_space.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/scrubber.h"
#include "tiers/store/section.h"
#include "tiers/store/sessions.h"
#include "tiers/store/trimmer.h"
#include "tiers/store/write_backer.h"

namespace kvkeep::store_internal {

class Limits {
 public:
  // The objects that it limits. All are borrowed. `beyond`: null if nothing lies beyond the node.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    DeviceSpace* space;
    Trimmer* trimmer;
    WriteBacker* writes;
    Sessions* sessions;
    Scrubber* scrubber;
    BeyondNode* beyond;
  };
  // Puts `options` into effect. REQUIRES: they are resolved.
  Limits(const StoreOptions& options, const StoreDeps& deps, Parts parts);

  // Returns the options with all defaults filled in that depend on memory and devices.
  static StoreOptions Resolve(StoreOptions options, const StoreDeps& deps);
  // A tenant's share of sessions, of the chunk table and of G3 is its share of G2. `quotas`: with
  // its quota of G3.
  static std::vector<Shares::Claim> ClaimsOf(const StoreOptions& options, bool quotas);

  // Returns the options in effect.
  StoreOptions options();
  // As Store::SetLimits, Store::AddMemory.
  absl::Status Set(const StoreOptions& options);
  void AddMemory(const std::vector<Extent>& extents);

 private:
  absl::Status CheckCapacities(const StoreOptions& options) STORE_LOCKED;
  // Returns the tenant's part of the bytes per second that may be written to G3.
  double WriteRate(const StoreOptions& options, size_t tenant) const;
  G2Pool::Limits PoolLimits(const StoreOptions& options, size_t tenant) STORE_LOCKED;
  // Returns new admission policies, by TenantId, which have learned nothing yet.
  WriteBacker::Admissions MakeAdmissions(const StoreOptions& options);
  void SetTenantLimits(const StoreOptions& options) STORE_LOCKED;

  const StoreOptions& options_;  // as at the start
  const StoreDeps& deps_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  DeviceSpace& space_;
  Trimmer& trimmer_;
  WriteBacker& writes_;
  Sessions& sessions_;
  Scrubber& scrubber_;
  BeyondNode* const beyond_;
  StoreOptions limits_ STORE_GUARDED;
};

}  // namespace kvkeep::store_internal
