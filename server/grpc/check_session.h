// A session's token stands for the session only in calls of its own tenant: to know a token does
// not make a caller the tenant that opened the session.
//
// Thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include "server/observe/server_state.h"
#include "tiers/store/store.h"

namespace kvkeep {

// Returns the session that the field `session_token` names, for a call of `caller`.
// InvalidArgument: it is not a token. FailedPrecondition: no open session has it, or the session is
// another tenant's, which is counted and told in the same words.
absl::StatusOr<SessionToken> CheckSession(Store* store, ServerCounters* counters, TenantId caller,
                                          absl::string_view token);

}  // namespace kvkeep
