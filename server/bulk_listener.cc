#include "server/bulk_listener.h"

#include <algorithm>
#include <thread>

namespace kvkeep {
namespace {

// A thread moves some GB/s, most of it in the kernel.
constexpr size_t kCoresPerThread = 4, kMostThreads = 8;

}  // namespace

BulkDoor::Limits BulkLimitsOf(const DaemonOptions& options) {
  return {.max_connections = options.max_connections,
          .max_address_connections = options.max_address_connections};
}

absl::StatusOr<std::unique_ptr<BulkDoor>> OpenBulkDoor(const DaemonOptions& options, Store* store,
                                                       TcpAccess* tcp, ServerState* state) {
  BulkDoor::Options door{.tcp_address = options.bulk_tcp_address,
                         .limits = BulkLimitsOf(options),
                         .peer_timeout = options.peer_timeout,
                         .tcp_connection_age = options.tcp_connection_age};
  for (uint32_t t = 0; t < options.tenants.size(); ++t) {
    const UnixSocketOptions& socket = options.tenants[t].bulk;
    if (!socket.path.empty()) door.sockets.push_back({socket, TenantId(t)});
  }
  if (door.sockets.empty() && door.tcp_address.empty()) return nullptr;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  door.threads = std::clamp<size_t>(cores / kCoresPerThread, 1, kMostThreads);
  absl::StatusOr<std::unique_ptr<BulkDoor>> started =
      BulkDoor::Start(door, {.store = store, .state = state, .tcp = tcp});
  if (!started.ok()) return started.status();
  for (Executor* const loop : (*started)->loops()) state->loops.Watch("bulk", loop);
  return started;
}

}  // namespace kvkeep
