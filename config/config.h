// Config: the configuration of a kvkeep daemon, as plain values.
//
// One YAML file, every key optional; a key that is not set has the default written here. The keys,
// their limits and their one-line docs are one table (schema.h), which drives parsing, checking and
// PrintDefaultConfig. The server maps these values to the options of its components; nothing here
// knows those. README.md says what a new key takes.
//
// Loading never throws, never touches the file system beyond reading the file, and reports every
// error at once. Plain values: thread-compatible.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/events.h"
#include "config/g4.h"
#include "config/limits.h"
#include "config/tenants.h"
#include "tiers/base/units.h"

namespace kvkeep {

struct ListenConfig {
  std::string unix_path = "/run/kvkeep/kvkeep.sock";
  std::string local_path = "/run/kvkeep/local.sock";  // empty: off
  std::string bulk_path;                              // likewise
  std::string admin_path = "/run/kvkeep-admin/admin.sock";
  std::string tcp_address, bulk_tcp_address;  // host:port; empty: off
  bool tcp_insecure_plaintext = false;
  std::chrono::milliseconds tcp_connection_age{86'400'000};  // 0: no limit
  AccessConfig access;        // of the default tenant
  TenantLimitsConfig limits;  // of the default tenant
  bool operator==(const ListenConfig&) const = default;
};

// TLS of the TCP address.
struct TlsConfig {
  std::string cert_file, key_file, client_ca_file, client_crl_file;  // empty: not set
  std::vector<std::string> admin_certificate_names;

  bool operator==(const TlsConfig&) const = default;
};

enum class ArenaChoice { kAuto, kMemfd, kMount };
enum class PlacementChoice { kAuto, kOff, kSpread, kInterleave };

struct G2Config {
  uint64_t capacity_bytes = 64 * kGiB;
  uint64_t segment_bytes = 1 * kGiB;
  ArenaChoice arena = ArenaChoice::kAuto;
  std::string arena_dir;           // empty: none
  std::string arena_readonly_dir;  // empty: none
  PlacementChoice numa = PlacementChoice::kAuto;
  std::string policy = "reuse";
  double dirty_budget = 0.25;  // of the capacity
  uint64_t copy_threads = 0;   // 0: as many as cores, at most 8

  bool operator==(const G2Config&) const = default;
};

struct G3PathConfig {
  std::string dir = "/var/lib/kvkeep/nvme0";
  uint64_t capacity_bytes = 1 * kTiB;
  bool required = false;

  bool operator==(const G3PathConfig&) const = default;
};

struct EncryptionConfig {                              // at rest, of G3
  std::string master_key_file;                         // empty: off
  std::vector<std::string> previous_master_key_files;  // earlier ones, in any order

  bool operator==(const EncryptionConfig&) const = default;
};

enum class WritePolicyChoice { kEager };
enum class IoChoice { kAuto, kUring, kThreads };

struct G3Config {
  std::vector<G3PathConfig> paths = {G3PathConfig{}};  // empty: no G3
  std::string policy = "reuse";
  WritePolicyChoice write_policy = WritePolicyChoice::kEager;
  std::string admission = "all";
  uint64_t write_budget_bytes_per_second = 0;  // 0: the endurance alone is the limit
  uint64_t endurance_tbw = 0;                  // of all paths together; 0: not set
  uint64_t endurance_years = 5;
  IoChoice io = IoChoice::kAuto;
  uint64_t scrub_bytes_per_second = 0;

  bool operator==(const G3Config&) const = default;
};

enum class GpuChoice { kAuto, kOff, kRequired };

struct GpuConfig {
  GpuChoice mode = GpuChoice::kAuto;

  bool operator==(const GpuConfig&) const = default;
};

struct MetricsConfig {
  std::string listen_address = "127.0.0.1:9464";  // empty: off
  std::string unix_path, socket_group, token_file;  // empty: none
  bool operator==(const MetricsConfig&) const = default;
};

enum class LogLevelChoice { kTrace, kDebug, kInfo, kWarn, kError };
enum class LogFormatChoice { kLogfmt, kJson };

struct LogConfig {
  LogLevelChoice level = LogLevelChoice::kInfo;
  LogFormatChoice format = LogFormatChoice::kLogfmt;
  std::chrono::milliseconds slow_operation{1'000};  // 0: off

  bool operator==(const LogConfig&) const = default;
};

struct StateConfig {
  std::string dir = "/var/lib/kvkeep";

  bool operator==(const StateConfig&) const = default;
};

struct DrainConfig {
  std::chrono::milliseconds timeout{15'000};
  bool to_peers = false;

  bool operator==(const DrainConfig&) const = default;
};

struct Config {
  ListenConfig listen;
  TlsConfig tls;
  std::vector<TenantConfig> tenants;
  G2Config g2;
  G3Config g3;
  EncryptionConfig encryption;
  G4Config g4;
  RemoteConfig remote;
  FleetConfig fleet;
  GpuConfig gpu;
  LimitsConfig limits;
  MetricsConfig metrics;
  EventsConfig events;
  LogConfig log;
  StateConfig state;
  DrainConfig drain;

  bool operator==(const Config&) const = default;
};

// A config, or all of its errors: "file:line:col: message", in the order of the file; errors
// without a place are "file: message".
struct LoadResult {
  std::optional<Config> config;     // set exactly when there are no errors
  std::vector<std::string> errors;  // at most kMaxConfigErrors, then how many more there are
  // Where each value was set ("FILE:7", "environment KVKEEP_G2_CAPACITY", "flag --g2.capacity"), by
  // the key's path with the numbers of list entries ("g3.paths[0].dir"). Values without an entry
  // have the default.
  std::map<std::string, std::string> origins;
  std::vector<std::string> warnings;
};
inline constexpr size_t kMaxConfigErrors = 100;
inline constexpr size_t kMaxConfigBytes = 256 * kKiB;
inline constexpr size_t kMaxG3Paths = 64, kMaxTenants = 64;

// Returns the number of G2's segments of each tenant: first the default tenant's, then those of
// config.tenants in their order. The share of every tenant but the default one is rounded down.
std::vector<uint64_t> TenantSegments(const Config& config);

// Returns the bytes that may be written to G3 a second: the configured budget or what the endurance
// allows, whichever is lower. 0: no limit.
uint64_t WriteBudget(const G3Config& g3);

// `filename` is for messages only.
LoadResult LoadConfig(absl::string_view text, absl::string_view filename);
LoadResult LoadConfigFile(const std::string& path);

// Return a config as YAML that loads to the same config; PrintDefaultConfig with its docs as
// comments.
std::string PrintConfig(const Config& config);
std::string PrintDefaultConfig();

}  // namespace kvkeep
