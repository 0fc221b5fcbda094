// GetPlan: a GetRequest, checked.
#pragma once

#include <cstdint>

#include "server/requests/convert.h"
#include "tiers/store/store.h"

namespace kvkeep {

struct GetPlan {
  SessionToken session;
  TenantId tenant;  // of the session
  OwnedChunkSet chunks;
  LeaseId lease;
  uint32_t first_piece = 0;
  uint32_t pieces = 0;  // 0: to the end
  bool metadata = false;
  bool transient = false;
  BeyondOptions beyond;  // asks only without a lease
};

}  // namespace kvkeep
