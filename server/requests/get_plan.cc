#include "server/requests/get_plan.h"

#include <chrono>

#include "server/requests/named_chunks.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/beyond_limits.h"

namespace kvkeep {

absl::StatusOr<GetPlan> ToGetPlan(const Store& store, const SessionToken& session,
                                  const v1::GetRequest& request) {
  GetPlan plan{.session = session,
               .lease = LeaseId(request.lease_id()),
               .first_piece = request.first_piece(),
               .pieces = request.pieces(),
               .metadata = request.metadata(),
               .transient = request.transient(),
               .beyond = {.wait = std::chrono::microseconds(request.remote_wait_us()),
                          .recompute_per_key = kNotComputable}};
  KVKEEP_RETURN_IF_ERROR(plan.beyond.Validate());
  KVKEEP_ASSIGN_OR_RETURN(plan.chunks, ParseNamedChunks(store, session, request));
  KVKEEP_ASSIGN_OR_RETURN(plan.tenant, store.TenantOf(session));
  return plan;
}

}  // namespace kvkeep
