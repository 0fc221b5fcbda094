// The local path's endpoint over the engine room: from the daemon's options to LocalEndpoint's.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "server/engine_room.h"
#include "server/local/endpoint.h"
#include "server/options.h"
#include "server/server_state.h"

namespace kvkeep {

// Null when no tenant has a socket for it. `room`, `gpu` and `state` must outlive the endpoint, and
// EngineRoom::AwaitQuiet comes between its Stop and their end. Errors: see LocalEndpoint::Start.
absl::StatusOr<std::unique_ptr<LocalEndpoint>> OpenLocalDoor(const DaemonOptions& options,
                                                             EngineRoom* room, GpuPath* gpu,
                                                             ServerState* state);

}  // namespace kvkeep
