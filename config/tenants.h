// A daemon's tenants as an operator configures them: which clients belong to which tenant, and what
// each tenant may have. Plain values, part of Config (config.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvkeep {

enum class GrantChoice { kReadWrite, kRead, kWrite };

// Identifies a tenant's clients. By Unix socket: by the mode and group of its file, and by lists of
// the uids and gids that a peer may have; with both lists empty, any peer that the mode lets
// connect. Over TCP: by names in certificates, and by tokens.
struct AccessConfig {
  uint32_t socket_mode = 0660;
  std::string socket_group;  // name or number; empty: the daemon's
  std::vector<uint32_t> allowed_uids;
  std::vector<uint32_t> allowed_gids;
  GrantChoice socket_grant = GrantChoice::kReadWrite;
  std::vector<std::string> certificate_names;  // "NAME", "NAME read" or "NAME write"
  std::string token_file;                      // empty: none
  std::vector<std::string> readers;            // names of other tenants that may read its chunks
  std::vector<std::string> gpus = {"all"};     // UUIDs of GPUs that its workers may register
  bool shared = false;                         // with the fleet's other nodes

  bool operator==(const AccessConfig&) const = default;
};

// Limits of a tenant's clients together, by all listeners. 0: no limit of its own.
struct TenantLimitsConfig {
  uint64_t keys_per_second = 0;
  uint64_t bytes_per_second = 0;
  uint64_t leased_bytes = 0;   // 0: its part of limits.leased_bytes
  uint64_t staging_bytes = 0;  // 0: its part of limits.staging
  uint64_t connections = 0;    // of each of its sockets; 0: limits.connections, limits.sessions

  bool operator==(const TenantLimitsConfig&) const = default;
};

// A tenant beside the default one. The default tenant has ListenConfig's sockets, and the part of
// G2 that the others leave.
struct TenantConfig {
  std::string name;
  std::string unix_path;
  std::string local_path, bulk_path;  // empty: off
  AccessConfig access;
  TenantLimitsConfig limits;
  double g2_share = 0;          // of g2.capacity, rounded down to whole segments
  uint64_t g3_quota_bytes = 0;  // 0: none
  std::string g4_key_file;      // empty: the fleet's
  // ZeroMQ endpoints of this tenant's events, as in EventsConfig. Empty: none.
  std::string zmq_endpoint, zmq_replay_endpoint;

  bool operator==(const TenantConfig&) const = default;
};

}  // namespace kvkeep
