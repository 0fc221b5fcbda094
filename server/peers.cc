#include "server/peers.h"

#include "tiers/base/status_macros.h"

namespace kvkeep {

absl::StatusOr<std::unique_ptr<Fleet>> OpenFleet(const PeersOptions& options, StorageStack* storage,
                                                 TcpAccess* tcp, ServerState* state,
                                                 const Log* log) {
  if (storage->fleet() == nullptr) return nullptr;
  KVKEEP_ASSIGN_OR_RETURN(
      const std::shared_ptr<Members> members,
      Members::Load({.node = options.node, .peers = options.peers, .file = options.peers_file}));
  members->Watch();
  return std::make_unique<Fleet>(
      FleetOptions{.serve_bytes_per_second = options.serve_bytes_per_second,
                   .serve_pinned_bytes = options.serve_pinned_bytes,
                   .shared_tenants = options.shared_tenants},
      Fleet::Parts{.members = members,
                   .identity = tcp->fleet_tls(),
                   .source = storage->fleet(),
                   .store = storage->store(),
                   .state = state,
                   .executor = storage->copy_executor(),
                   .background = storage->background_executor(),
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
