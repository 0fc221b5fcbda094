#include "server/life/options.h"

#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "config/values.h"
#include "server/life/arena_owners.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep {
namespace {

constexpr uint64_t kPartServed = 8;  // peers may pin an 8th of G2 at once

absl::Status In(absl::string_view section, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("config, ", section, ": ", std::string(status.message())));
}

GpuMode ToGpuMode(GpuChoice choice) {
  switch (choice) {
    case GpuChoice::kAuto:
      return GpuMode::kAuto;
    case GpuChoice::kOff:
      return GpuMode::kOff;
    case GpuChoice::kRequired:
      return GpuMode::kRequired;
  }
  KVKEEP_CHECK(false);
}

NumaChoice ToNuma(PlacementChoice choice) {
  switch (choice) {
    case PlacementChoice::kAuto:
      return NumaChoice::kAuto;
    case PlacementChoice::kOff:
      return NumaChoice::kOff;
    case PlacementChoice::kSpread:
      return NumaChoice::kSpread;
    case PlacementChoice::kInterleave:
      return NumaChoice::kInterleave;
  }
  return NumaChoice::kAuto;
}

ArenaBacking ToBacking(ArenaChoice choice) {
  switch (choice) {
    case ArenaChoice::kAuto:
      return ArenaBacking::kAuto;
    case ArenaChoice::kMemfd:
      return ArenaBacking::kMemfd;
    case ArenaChoice::kMount:
      return ArenaBacking::kMount;
  }
  return ArenaBacking::kAuto;
}

IoMode ToIoMode(IoChoice choice) {
  switch (choice) {
    case IoChoice::kAuto:
      return IoMode::kAuto;
    case IoChoice::kUring:
      return IoMode::kUring;
    case IoChoice::kThreads:
      return IoMode::kThreads;
  }
  return IoMode::kAuto;
}

spdlog::level::level_enum ToLevel(LogLevelChoice choice) {
  switch (choice) {
    case LogLevelChoice::kTrace:
      return spdlog::level::trace;
    case LogLevelChoice::kDebug:
      return spdlog::level::debug;
    case LogLevelChoice::kInfo:
      return spdlog::level::info;
    case LogLevelChoice::kWarn:
      return spdlog::level::warn;
    case LogLevelChoice::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

uint64_t Share(double share, uint64_t of) {
  return static_cast<uint64_t>(share * static_cast<double>(of));
}

const TenantLimitsConfig& LimitsOf(const Config& config, size_t tenant) {
  return tenant == 0 ? config.listen.limits : config.tenants[tenant - 1].limits;
}

const AccessConfig& AccessOf(const Config& config, size_t tenant) {
  return tenant == 0 ? config.listen.access : config.tenants[tenant - 1].access;
}

// Returns the numbers of the tenants with these names, which the config has checked.
std::vector<TenantId> ToReaders(const std::vector<std::string>& names, const Config& config) {
  std::vector<TenantId> readers;
  for (const std::string& name : names) {
    uint32_t number = 0;  // of "default"
    for (uint32_t i = 0; i < config.tenants.size(); ++i) {
      if (config.tenants[i].name == name) number = i + 1;
    }
    readers.emplace_back(number);
  }
  return readers;
}

std::vector<TenantOptions> ToTenantOptions(const Config& config) {
  std::vector<TenantOptions> tenants;
  if (config.tenants.empty() && config.listen.limits == TenantLimitsConfig{}) return tenants;
  const std::vector<uint64_t> segments = TenantSegments(config);
  for (size_t i = 0; i < segments.size(); ++i) {
    const TenantLimitsConfig& limits = LimitsOf(config, i);
    tenants.push_back({.g2_segments = segments[i],
                       .keys_per_second = limits.keys_per_second,
                       .bytes_per_second = limits.bytes_per_second,
                       .max_leased_bytes = limits.leased_bytes,
                       .readers = ToReaders(AccessOf(config, i).readers, config)});
    if (i == 0) continue;
    tenants[i].name = config.tenants[i - 1].name;
    tenants[i].g3_quota_bytes = config.tenants[i - 1].g3_quota_bytes;
  }
  return tenants;
}

StoreOptions ToStoreOptions(const Config& config) {
  const uint64_t arena = config.g2.capacity_bytes;
  StoreOptions store;
  store.g2_capacity_bytes = arena;
  store.g2_policy = config.g2.policy;
  store.g3_policy = config.g3.policy;
  store.g3_admission = config.g3.admission;
  store.g3_write_bytes_per_second = WriteBudget(config.g3);
  store.scrub_bytes_per_second = config.g3.scrub_bytes_per_second;
  store.remote_write_bytes_per_second = config.g4.write_bytes_per_second;
  store.remote_lifetime = config.g4.lifetime;
  store.remote_second_use = config.g4.admission == "second_use";
  store.dirty_budget_bytes = Share(config.g2.dirty_budget, arena);
  store.max_chunks = config.limits.max_chunks;
  store.max_keys_per_call = static_cast<uint32_t>(config.limits.keys_per_call);
  store.max_sessions = static_cast<uint32_t>(config.limits.sessions);
  store.max_leases_per_session = static_cast<uint32_t>(config.limits.leases_per_session);
  store.max_leased_bytes = Share(config.limits.leased_bytes, arena);
  store.max_reserved_bytes = Share(config.limits.reserved_bytes, arena);
  store.tenants = ToTenantOptions(config);
  return store;
}

// REQUIRES: CheckG4Url (config/values.h) accepts the URL.
std::optional<G4Options> ToG4(const Config& config) {
  if (config.g4.url.empty()) return std::nullopt;
  G4Options g4{.place = {.keys = {.credentials = config.g4.credentials,
                                  .file = config.g4.credentials_file,
                                  .process = config.g4.credential_process},
                         .http = {.connections = static_cast<uint32_t>(config.g4.connections),
                                  .ca_file = config.g4.ca_file,
                                  .proxy = config.g4.proxy}},
               .fleet_name = config.fleet.name,
               .epoch = config.g4.epoch,
               .probes_per_second = config.remote.probes_per_second,
               .tenants = {""}};
  for (const TenantConfig& tenant : config.tenants) g4.tenants.push_back(tenant.name);
  G4Place place = SplitG4Url(config.g4.url);
  g4.place.directory = std::move(place.directory);
  g4.place.fleet = config.fleet.name;
  if (!g4.place.directory.empty()) return g4;
  g4.place.bucket = {.endpoints = {std::move(place.endpoint)},
                     .bucket = std::move(place.bucket),
                     .prefix = config.g4.prefix,
                     .region = config.g4.region,
                     .virtual_host = config.g4.virtual_host};
  return g4;
}

absl::flat_hash_set<uint32_t> ToSharedTenants(const Config& config) {
  absl::flat_hash_set<uint32_t> tags;
  if (config.listen.access.shared) tags.insert(TenantTagOf(""));
  for (const TenantConfig& tenant : config.tenants) {
    if (tenant.access.shared) tags.insert(TenantTagOf(tenant.name));
  }
  return tags;
}

FleetKeyFiles ToFleetKeyFiles(const Config& config) {
  FleetKeyFiles files{.fleet = config.fleet.key_file, .previous = config.fleet.previous_key_files};
  for (const TenantConfig& tenant : config.tenants) {
    if (!tenant.g4_key_file.empty()) files.tenants[tenant.name] = tenant.g4_key_file;
  }
  return files;
}

UnixSocketOptions ToSocket(const std::string& path, const AccessConfig& access) {
  return {.path = path,
          .mode = access.socket_mode,
          .group = access.socket_group,
          .policy = {.uids = {access.allowed_uids.begin(), access.allowed_uids.end()},
                     .gids = {access.allowed_gids.begin(), access.allowed_gids.end()}}};
}

Grants ToGrants(GrantChoice choice) {
  return {.read = choice != GrantChoice::kWrite, .write = choice != GrantChoice::kRead};
}

// REQUIRES: the config has checked the form.
GpuUuid ToGpuUuid(absl::string_view text) {
  const std::string digits = absl::StrReplaceAll(text.substr(text.find('-')), {{"-", ""}});
  const std::string bytes = absl::HexStringToBytes(digits);
  GpuUuid uuid{};
  KVKEEP_CHECK(bytes.size() == uuid.size());
  std::memcpy(uuid.data(), bytes.data(), uuid.size());
  return uuid;
}

GpuRights ToGpuRights(const std::vector<std::string>& gpus, bool default_tenant) {
  GpuRights rights{.all = false, .ipc_handles = default_tenant};
  for (const std::string& gpu : gpus) {
    if (gpu == "all") {
      rights.all = true;
    } else {
      rights.gpus.push_back(ToGpuUuid(gpu));
    }
  }
  return rights;
}

TenantListener ToListener(const std::string& name, const std::string& unix_path,
                          const std::string& local_path, const std::string& bulk_path,
                          const AccessConfig& access) {
  return {.name = name,
          .grpc = ToSocket(unix_path, access),
          .local = ToSocket(local_path, access),
          .bulk = ToSocket(bulk_path, access),
          .grants = ToGrants(access.socket_grant),
          .credentials = {.tenant = name,
                          .certificate_names = access.certificate_names,
                          .token_file = access.token_file}};
}

// Returns each tenant's part of resources that have no limit by tenant: they are divided as G2 is,
// and no tenant can take another's part.
std::vector<double> TenantParts(const Config& config) {
  const std::vector<uint64_t> segments = TenantSegments(config);
  const uint64_t all = std::accumulate(segments.begin(), segments.end(), uint64_t{0});
  std::vector<double> parts;
  for (const uint64_t own : segments) {
    parts.push_back(static_cast<double>(own) / static_cast<double>(all));
  }
  return parts;
}

std::vector<TenantListener> ToTenants(const Config& config) {
  const ListenConfig& listen = config.listen;
  std::vector<TenantListener> listeners = {
      ToListener("", listen.unix_path, listen.local_path, listen.bulk_path, listen.access)};
  for (const TenantConfig& tenant : config.tenants) {
    listeners[0].g2_share -= tenant.g2_share;
    listeners.push_back(ToListener(tenant.name, tenant.unix_path, tenant.local_path,
                                   tenant.bulk_path, tenant.access));
    listeners.back().g2_share = tenant.g2_share;
  }
  const std::vector<uint64_t> segments = TenantSegments(config);
  const std::vector<double> parts = TenantParts(config);
  for (size_t i = 0; i < listeners.size(); ++i) {
    const double part = parts[i];
    const TenantLimitsConfig& limits = LimitsOf(config, i);
    listeners[i].g2_segments = segments[i];
    listeners[i].gpu_part = part;
    listeners[i].gpu_rights = ToGpuRights(AccessOf(config, i).gpus, i == 0);
    listeners[i].message_bytes =
        std::max(kLeastMessageBytes, Share(part, config.limits.local_memory_bytes));
    listeners[i].connections = limits.connections;
    listeners[i].local_connections = static_cast<uint32_t>(
        limits.connections > 0 ? limits.connections
                               : std::max<uint64_t>(1, Share(part, config.limits.sessions)));
    listeners[i].staging_bytes =
        limits.staging_bytes > 0 ? limits.staging_bytes
                                 : Share(part * config.limits.staging, config.g2.capacity_bytes);
  }
  return listeners;
}

std::vector<PublisherOptions> ToPublishers(const Config& config) {
  std::vector<PublisherOptions> publishers;
  const auto add = [&](size_t tenant, const std::string& endpoint, const std::string& replay,
                       const AccessConfig& access) {
    if (endpoint.empty()) return;
    publishers.push_back({.sockets = {.endpoint = endpoint,
                                      .replay_endpoint = replay,
                                      .ipc_mode = access.socket_mode,
                                      .ipc_group = access.socket_group},
                          .form = config.events.form == EventFormChoice::kSglang
                                      ? EventForm::kSglang
                                      : EventForm::kVllm,
                          .tenant = TenantId(static_cast<uint32_t>(tenant))});
  };
  add(0, config.events.zmq_endpoint, config.events.zmq_replay_endpoint, config.listen.access);
  for (size_t i = 0; i < config.tenants.size(); ++i) {
    add(i + 1, config.tenants[i].zmq_endpoint, config.tenants[i].zmq_replay_endpoint,
        config.tenants[i].access);
  }
  for (PublisherOptions& one : publishers) {
    one.sockets.queued_bytes = config.events.queued_bytes / publishers.size();
  }
  return publishers;
}

PinBudget::Limits ToPinLimits(const Config& config) {
  const uint64_t bytes = Share(config.limits.pinned_bytes, config.g2.capacity_bytes);
  PinBudget::Limits limits;
  for (const double part : TenantParts(config)) limits.tenant_bytes.push_back(Share(part, bytes));
  return limits;
}

LocalLimits ToLocalLimits(const Config& config) {
  return {.max_connections = static_cast<uint32_t>(config.limits.sessions),
          .max_staging_bytes = config.limits.staging_per_session_bytes,
          .max_all_staging_bytes = Share(config.limits.staging, config.g2.capacity_bytes),
          .max_message_bytes = config.limits.local_memory_bytes,
          .grace = config.limits.session_grace,
          .busy_poll = std::chrono::microseconds(config.limits.busy_poll_us)};
}

StorageOptions ToStorageOptions(const Config& config,
                                const std::vector<TenantListener>& listeners) {
  StorageOptions options;
  options.arena = {.capacity_bytes = config.g2.capacity_bytes,
                   .segment_bytes = config.g2.segment_bytes,
                   .backing = ToBacking(config.g2.arena),
                   .mount_dir = config.g2.arena_dir,
                   .readonly_dir = config.g2.arena_readonly_dir,
                   .numa_choice = ToNuma(config.g2.numa)};
  options.io.mode = ToIoMode(config.g3.io);
  for (const G3PathConfig& path : config.g3.paths) {
    options.devices.push_back(
        {.dir = path.dir, .capacity_bytes = path.capacity_bytes, .required = path.required});
  }
  options.store = ToStoreOptions(config);
  options.copy_threads = static_cast<int>(config.g2.copy_threads);
  options.state_dir = config.state.dir;
  options.g4 = ToG4(config);
  if (!config.fleet.node.empty()) {
    options.peers.emplace().shared_tenants = ToSharedTenants(config);
    options.fleet_name = config.fleet.name;
  }
  options.fleet_keys = ToFleetKeyFiles(config);
  options.master_key_file = config.encryption.master_key_file;
  options.previous_master_key_files = config.encryption.previous_master_key_files;
  options.arena.owners = NameArenaOwners(options.store.tenants, listeners);
  return options;
}

}  // namespace

absl::Status CheckTcpAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon != absl::string_view::npos && colon > 0 &&
      absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 && port <= 65535) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("listen.tcp: \"", address, "\" is not host:port with a port of 1 to 65535"));
}

absl::StatusOr<DaemonOptions> ToDaemonOptions(const Config& config) {
  DaemonOptions options;
  options.tenants = ToTenants(config);
  options.storage = ToStorageOptions(config, options.tenants);
  options.local = ToLocalLimits(config);
  options.max_connections = config.limits.connections;
  options.max_address_connections = config.limits.connections_per_address;
  if (options.max_address_connections == 0 && !IsLoopbackAddress(config.listen.tcp_address)) {
    options.max_address_connections = std::max<uint64_t>(1, config.limits.connections / 4);
  }
  options.receive_memory_bytes = config.limits.receive_memory_bytes;
  options.http2 = {.call_memory_bytes = config.limits.call_memory_bytes,
                   .resets_per_second = config.limits.resets_per_second};
  options.pinned = ToPinLimits(config);
  options.stall_timeout = config.limits.stall_timeout;
  options.peer_timeout = config.limits.peer_timeout;
  options.admin_socket_path = config.listen.admin_path;
  options.tcp_address = config.listen.tcp_address;
  options.bulk_tcp_address = config.listen.bulk_tcp_address;
  options.tcp_connection_age = config.listen.tcp_connection_age;
  options.tls = {.cert_file = config.tls.cert_file,
                 .key_file = config.tls.key_file,
                 .client_ca_file = config.tls.client_ca_file,
                 .client_crl_file = config.tls.client_crl_file};
  options.admin_certificate_names = config.tls.admin_certificate_names;
  options.peers = {.node = config.fleet.node,
                   .peers = config.fleet.peers,
                   .peers_file = config.fleet.peers_file,
                   .ca_file = config.fleet.ca_file,
                   .serve_bytes_per_second = config.fleet.serve_bytes_per_second,
                   .serve_pinned_bytes = config.g2.capacity_bytes / kPartServed,
                   .shared_tenants = ToSharedTenants(config)};
  options.metrics_address = config.metrics.listen_address;
  options.metrics_socket = {.path = config.metrics.unix_path,
                            .mode = config.metrics.socket_group.empty() ? 0600u : 0660u,
                            .group = config.metrics.socket_group,
                            .policy = {}};
  options.metrics_token_file = config.metrics.token_file;
  options.events = ToPublishers(config);
  options.gpu = ToGpuMode(config.gpu.mode);
  options.drain_timeout = config.drain.timeout;
  options.drain_to_peers = config.drain.to_peers;
  options.log_format =
      config.log.format == LogFormatChoice::kJson ? LogFormat::kJson : LogFormat::kLogfmt;
  options.log_level = ToLevel(config.log.level);
  options.slow_operation = config.log.slow_operation;

  if (!options.tcp_address.empty()) {
    KVKEEP_RETURN_IF_ERROR(In("listen", CheckTcpAddress(options.tcp_address)));
  }
  KVKEEP_RETURN_IF_ERROR(In("g2", options.storage.arena.Validate()));
  KVKEEP_RETURN_IF_ERROR(In("g3", options.storage.io.Validate()));
  for (const NvmeDeviceOptions& device : options.storage.devices) {
    KVKEEP_RETURN_IF_ERROR(In(absl::StrCat("g3.paths, ", device.dir), device.Validate()));
  }
  KVKEEP_RETURN_IF_ERROR(In("limits", options.storage.store.Validate()));
  KVKEEP_RETURN_IF_ERROR(In("limits", options.local.Validate()));
  return options;
}

}  // namespace kvkeep
