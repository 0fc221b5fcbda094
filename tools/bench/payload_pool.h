// Memory for payloads to put. On the local path staging memory: what a put names there is read by
// the daemon alone. Elsewhere, and for loads, the process's own.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "tools/bench/operation.h"

namespace kvkeep::bench {

std::unique_ptr<PayloadPool> MakeOwnPool(uint64_t bytes);
// Staging memory when the context is on the local path. ResourceExhausted: the daemon gives less to
// a session.
absl::StatusOr<std::unique_ptr<PayloadPool>> MakePool(ClientContext* context, uint64_t bytes);

}  // namespace kvkeep::bench
