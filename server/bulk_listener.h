// The bulk door over the store: from the daemon's options to BulkDoor's.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "server/access/tcp_access.h"
#include "server/bulk/bulk_door.h"
#include "server/life/options.h"
#include "server/observe/server_state.h"
#include "tiers/store/store.h"

namespace kvkeep {

// Returns null when no address is set for it. `tcp` is null without listen.tcp; all are borrowed.
// Errors: see BulkDoor::Start.
absl::StatusOr<std::unique_ptr<BulkDoor>> OpenBulkDoor(const DaemonOptions& options, Store* store,
                                                       TcpAccess* tcp, ServerState* state);

BulkDoor::Limits BulkLimitsOf(const DaemonOptions& options);

}  // namespace kvkeep
