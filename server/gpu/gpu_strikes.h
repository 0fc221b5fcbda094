// GpuStrikes: records which tenants' memory and copies broke contexts of GPUs, and refuses
// tenants that did so too often.
//
// All tenants' copies of a GPU are in one context: a tenant that breaks it (memory that is freed
// while it is copied, say) ends the copies of all tenants. The driver does not tell whose fault it
// was. If only one tenant's work was with the driver, that tenant gets a strike; after too many it
// is refused, as long as the process lives. If it was several tenants', none gets a strike, but
// from then on work of theirs is never with the driver beside another tenant's: the next break
// tells.
//
// Thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/gpu/gpu_device.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class GpuStrikes {
 public:
  explicit GpuStrikes(size_t most) : most_(most) {}

  // Records that a context broke while the driver had work of these tenants; each may be named more
  // than once.
  void NoteBreak(std::vector<GpuTenant> with_the_driver);
  // Returns whether the driver may have work of both tenants at once.
  bool MayBeBeside(GpuTenant one, GpuTenant other) const;
  // Unavailable: this tenant has used up its strikes.
  absl::Status Check(GpuTenant tenant) const;
  // Returns the number of tenants that Check refuses.
  size_t tenants_off() const;

 private:
  struct Known {
    size_t strikes = 0;
    bool apart = false;
  };

  const size_t most_;
  mutable Mutex mu_;
  absl::flat_hash_map<GpuTenant, Known> known_ ABSL_GUARDED_BY(mu_);  // involved in a break
};

}  // namespace kvkeep
