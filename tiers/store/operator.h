// Operator: the calls of an operator of a store that serves: list whose chunks there are, make room
// now, scrub now.
//
// Owns nothing. The contracts of the calls are in store.h. The calls take the store's lock.
#pragma once

#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/device_space.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/owners.h"
#include "tiers/store/scrubber.h"
#include "tiers/store/section.h"
#include "tiers/store/sessions.h"
#include "tiers/store/snapshot.h"

namespace kvkeep::store_internal {

class Operator {
 public:
  // The objects that it works on. All are borrowed.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    DeviceSpace* space;
    Sessions* sessions;
    const Owners* owners;
    Scrubber* scrubber;
  };
  Operator(const StoreOptions& options, Parts parts);

  std::vector<NamespaceUse> Namespaces();
  absl::StatusOr<EvictResult> Evict(const EvictRequest& request);
  void ScrubRound(uint64_t bytes_per_second);

 private:
  // Returns false if the tenant has no chunk there that can go.
  bool EvictOneOf(Section& section, TenantId tenant, bool of_g3, EvictResult& result)
      STORE_LOCKED;

  const StoreOptions& options_;  // as at the start
  Chunks& chunks_;
  DeviceTiers& tiers_;
  DeviceSpace& space_;
  Sessions& sessions_;
  const Owners& owners_;
  Scrubber& scrubber_;
};

}  // namespace kvkeep::store_internal
