// MakePool: memory for payloads to put: staging memory on the local path, the process's own
// elsewhere. Present in full before it returns.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "tools/bench/operation.h"

namespace kvkeep::bench {

// ResourceExhausted: the daemon gives less staging memory to a session.
absl::StatusOr<std::unique_ptr<PayloadPool>> MakePool(ClientContext* context, uint64_t bytes);

}  // namespace kvkeep::bench
