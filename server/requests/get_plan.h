// GetPlan: a GetRequest, checked.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>

#include "kvkeep/v1/kvkeep.pb.h"
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

// Checks a request of a session that the caller may use (CheckSession). InvalidArgument names the
// field; FailedPrecondition: the session or the namespace is gone.
absl::StatusOr<GetPlan> ToGetPlan(const Store& store, const SessionToken& session,
                                  const v1::GetRequest& request);

}  // namespace kvkeep
