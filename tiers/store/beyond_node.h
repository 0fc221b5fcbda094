// BeyondNode: what lies beyond the node, with the objects that work on it. A store without such a
// source has none.
//
// The store's lock protects it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tiers/store/beyond.h"
#include "tiers/store/filler.h"
#include "tiers/store/recaller.h"
#include "tiers/store/remote_tier.h"

namespace kvkeep::store_internal {

struct BeyondNode {
  // `keys`: by TenantId. Borrows everything but the buffers.
  BeyondNode(const StoreOptions& options, const StoreDeps& deps, std::vector<const DataKey*> keys,
             std::shared_ptr<CipherBuffers> buffers, Chunks* chunks, Filler* filler,
             Recaller::Host* host)
      : tier(static_cast<uint16_t>(deps.devices.size()), deps.remote, deps.removal_log, options),
        changes(chunks, &tier, deps, std::move(keys), std::move(buffers),
                options.remote_write_bytes_per_second),
        recaller(chunks, &tier, filler, host, deps.clock) {
    tier.pump.SetWork([this, chunks, filler] {
      chunks->AssertHeld();
      filler->PumpReads(tier);
      changes.Pump();
    });
  }

  RemoteTier tier STORE_GUARDED;
  Beyond changes;
  Recaller recaller;
};

}  // namespace kvkeep::store_internal
