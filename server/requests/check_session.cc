#include "server/requests/check_session.h"

#include <absl/strings/str_cat.h>

#include "server/requests/convert.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {

absl::StatusOr<SessionToken> CheckSession(Store* store, ServerCounters* counters, TenantId caller,
                                          absl::string_view token) {
  KVKEEP_ASSIGN_OR_RETURN(const SessionToken session, ParseSessionToken(token));
  KVKEEP_ASSIGN_OR_RETURN(const TenantId owner, store->TenantOf(session));
  if (owner == caller) return session;
  counters->foreign_session_calls.fetch_add(1, std::memory_order_relaxed);
  return absl::FailedPreconditionError(
      absl::StrCat("session_token is not of an open session (daemon incarnation ",
                   store->incarnation().value(), ")"));
}

}  // namespace kvkeep
