// The local path's endpoint over the storage stack: from the daemon's options to LocalEndpoint's.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "server/life/options.h"
#include "server/local/endpoint.h"
#include "server/observe/server_state.h"
#include "server/storage/storage_stack.h"

namespace kvkeep {

// Returns null when no tenant has a socket for it. `storage`, `gpu` and `state` must outlive the
// endpoint, and StorageStack::AwaitQuiet comes between its Stop and their end. Errors: see
// LocalEndpoint::Start.
absl::StatusOr<std::unique_ptr<LocalEndpoint>> OpenLocalListener(const DaemonOptions& options,
                                                                 StorageStack* storage,
                                                                 GpuPath* gpu, ServerState* state);

}  // namespace kvkeep
