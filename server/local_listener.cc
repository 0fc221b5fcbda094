#include "server/local_listener.h"

#include <algorithm>

#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

// Returns the segments of the tenants that let `reader` read their chunks; it maps all of their G2.
std::vector<SegmentRange> SharedWith(TenantId reader, const std::vector<TenantOptions>& owners,
                                     const std::vector<SegmentRange>& segments) {
  std::vector<SegmentRange> shared;
  for (size_t i = 0; i < owners.size(); ++i) {
    const std::vector<TenantId>& readers = owners[i].readers;
    const bool reads = std::find(readers.begin(), readers.end(), reader) != readers.end();
    if (reads && i != reader.value()) shared.push_back(segments[i]);
  }
  return shared;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalEndpoint>> OpenLocalListener(const DaemonOptions& options,
                                                                 StorageStack* storage,
                                                                 GpuPath* gpu, ServerState* state) {
  LocalEndpoint::Options local{.limits = options.local, .version = state->version};
  const std::vector<TenantOptions>& owners = options.storage.store.tenants;
  std::vector<SegmentRange> segments(options.tenants.size());  // the whole arena, if it is one
  uint64_t first_segment = 0;
  for (size_t tenant = 0; tenant < owners.size(); ++tenant) {
    segments[tenant] = {.first = static_cast<uint32_t>(first_segment),
                        .count = static_cast<uint32_t>(owners[tenant].g2_segments)};
    first_segment += owners[tenant].g2_segments;
  }
  state->local_messages.resize(options.tenants.size());
  for (uint32_t tenant = 0; tenant < options.tenants.size(); ++tenant) {
    const UnixSocketOptions& socket = options.tenants[tenant].local;
    if (socket.path.empty()) continue;
    const uint64_t part = options.tenants[tenant].message_bytes;
    state->local_messages[tenant] =
        std::make_shared<MessageAccount>(part == 0 ? local.limits.max_message_bytes : part);
    local.listeners.push_back({.socket = socket,
                               .tenant = TenantId(tenant),
                               .grants = options.tenants[tenant].grants,
                               .segments = segments[tenant],
                               .shared = SharedWith(TenantId(tenant), owners, segments),
                               .max_connections = options.tenants[tenant].local_connections,
                               .max_staging_bytes = options.tenants[tenant].staging_bytes,
                               .gpu_part = options.tenants[tenant].gpu_part,
                               .gpu_rights = options.tenants[tenant].gpu_rights,
                               .messages = state->local_messages[tenant]});
  }
  if (local.listeners.empty()) return nullptr;
  KVKEEP_ASSIGN_OR_RETURN(
      std::unique_ptr<LocalEndpoint> endpoint,
      LocalEndpoint::Start(local, {.store = storage->store(),
                                   .arena = &storage->arena(),
                                   .copy_executor = storage->copy_executor(),
                                   .counters = &state->local,
                                   .gpu = gpu,
                                   .times = &state->times,
                                   .clock = RealClock(),
                                   .sockets = &state->sockets,
                                   .serving_state = [state] {
                                     return static_cast<uint32_t>(state->serving.load());
                                   }}));
  state->local_path.store(true, std::memory_order_release);
  return endpoint;
}

}  // namespace kvkeep
