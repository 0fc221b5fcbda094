// Limits: the options that may change while the store runs, what they come to for each tenant, and
// how what is held already is brought within new ones.
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
  // What it limits; all are borrowed. `beyond`: null: nothing lies beyond the node.
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
  // Puts `options` into effect, which are resolved.
  Limits(const StoreOptions& options, const StoreDeps& deps, Parts parts);

  // The options with each default filled in that depends on what there is.
  static StoreOptions Resolve(StoreOptions options, const StoreDeps& deps);
  // A tenant's share of sessions, of the chunk table and of G3 is its share of G2. `quotas`: with
  // its quota of G3.
  static std::vector<Shares::Claim> ClaimsOf(const StoreOptions& options, bool quotas);

  // In effect now.
  StoreOptions options();
  // As Store::SetLimits, Store::AddMemory.
  absl::Status Set(const StoreOptions& options);
  void AddMemory(const std::vector<Extent>& extents);

 private:
  absl::Status CheckCapacities(const StoreOptions& options) STORE_LOCKED;
  // The tenant's part of the bytes that may be written to G3 in a second.
  double WriteRate(const StoreOptions& options, size_t tenant) const;
  G2Pool::Limits PoolLimits(const StoreOptions& options, size_t tenant) STORE_LOCKED;
  // By TenantId. They have learned nothing yet.
  WriteBacker::Admissions MakeAdmissions(const StoreOptions& options);
  void SetTenantLimits(const StoreOptions& options) STORE_LOCKED;

  const StoreOptions& options_;  // of the start
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
