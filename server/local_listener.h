// The local path's endpoint over the storage stack: from the daemon's options to LocalEndpoint's.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "server/local/endpoint.h"
#include "server/options.h"
#include "server/server_state.h"
#include "server/storage_stack.h"

namespace kvkeep {

// Null when no tenant has a socket for it. `storage`, `gpu` and `state` must outlive the endpoint,
// and StorageStack::AwaitQuiet comes between its Stop and their end. Errors: see
// LocalEndpoint::Start.
absl::StatusOr<std::unique_ptr<LocalEndpoint>> OpenLocalListener(const DaemonOptions& options,
                                                                 StorageStack* storage,
                                                                 GpuPath* gpu, ServerState* state);

}  // namespace kvkeep
