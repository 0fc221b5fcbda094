// A session's token stands for the session, but only in calls of its own tenant: whoever came to
// know a token by whatever listener is not thereby the tenant that opened it.
//
// Thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include "server/observe/server_state.h"
#include "tiers/store/store.h"

namespace kvkeep {

// The session that the field `session_token` names, for a call of `caller`. InvalidArgument: it is
// no token. FailedPrecondition: no session is open with it, or one of another tenant, which is
// counted and told in the same words.
absl::StatusOr<SessionToken> CheckSession(Store* store, ServerCounters* counters, TenantId caller,
                                          absl::string_view token);

}  // namespace kvkeep
