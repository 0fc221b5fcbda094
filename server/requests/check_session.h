// A session's token is valid only in calls of the tenant that opened the session: knowing a token
// does not make a caller that tenant.
//
// Thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include "server/requests/server_counters.h"
#include "tiers/store/store.h"

namespace kvkeep {

// Returns the session that the field `session_token` names, for a call of `caller`.
// InvalidArgument: it is not a token. FailedPrecondition: no open session has it, or the session is
// another tenant's. The latter is counted, and has the same message.
absl::StatusOr<SessionToken> CheckSession(Store* store, ServerCounters* counters, TenantId caller,
                                          absl::string_view token);

}  // namespace kvkeep
