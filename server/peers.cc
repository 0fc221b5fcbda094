#include "server/peers.h"

namespace kvkeep {

absl::StatusOr<std::unique_ptr<Fleet>> OpenFleet(const PeersOptions& options, StorageStack* storage,
                                                 TcpAccess* tcp, ServerState* state,
                                                 const Log* log) {
  if (storage->fleet() == nullptr) return nullptr;
  return Fleet::Open(
      {.members = {.node = options.node, .peers = options.peers, .file = options.peers_file},
       .serve_bytes_per_second = options.serve_bytes_per_second,
       .serve_pinned_bytes = options.serve_pinned_bytes,
       .shared_tenants = options.shared_tenants},
      {.identity = tcp->fleet_tls(),
       .source = storage->fleet(),
       .store = storage->store(),
       .state = state,
       .executor = storage->copy_executor(),
       .log = log,
       .clock = RealClock(),
       .random = RealRandom()});
}

grpc::Service* ServiceOf(Fleet* fleet) { return fleet == nullptr ? nullptr : fleet->service(); }

std::optional<FleetSnapshot> SnapshotOf(const Fleet* fleet) {
  if (fleet == nullptr) return std::nullopt;
  return fleet->snapshot();
}

}  // namespace kvkeep
