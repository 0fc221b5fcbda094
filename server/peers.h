// Puts together what a daemon with peers has: Fleet, over the store and the TCP address's
// certificate.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <optional>

#include "server/access/tcp_access.h"
#include "server/fleet/fleet.h"
#include "server/life/options.h"
#include "server/storage/storage_stack.h"

namespace kvkeep {

// Borrows all pointers. Returns null if the storage has no peers. REQUIRES: if it has, `tcp` has a
// fleet_tls().
absl::StatusOr<std::unique_ptr<Fleet>> OpenFleet(const PeersOptions& options, StorageStack* storage,
                                                 TcpAccess* tcp, ServerState* state,
                                                 const Log* log);

// Null and none without a fleet.
grpc::Service* ServiceOf(Fleet* fleet);
std::optional<FleetSnapshot> SnapshotOf(const Fleet* fleet);

}  // namespace kvkeep
