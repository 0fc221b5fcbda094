// GpuRun: bytes of registered GPU memory, named by puts and gets. Numbers only.
//
// A get's run of no region skips bytes of the payload; its offset is 0.
#pragma once

#include <cstdint>

#include "tiers/base/strong_int.h"

namespace kvkeep::client {

// One registration of this client, the same over reconnects. Zero: none.
using GpuRegionId = StrongInt<struct GpuRegionIdTag, uint64_t>;

struct GpuRun {
  GpuRegionId region;
  uint64_t offset = 0;  // in the registered range
  uint64_t bytes = 0;
  bool operator==(const GpuRun&) const = default;
};

}  // namespace kvkeep::client
