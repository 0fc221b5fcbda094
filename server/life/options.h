// Maps the config's plain values to the options that each component owns. The only place that knows
// both.
#pragma once

#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <string>
#include <vector>

#include "config/config.h"
#include "server/access/credentials.h"
#include "server/access/tls_identity.h"
#include "server/events/publisher.h"
#include "server/gpu/gpu_path.h"
#include "server/local/gpu_account.h"
#include "server/local/limits.h"
#include "server/observe/log.h"
#include "server/requests/pin_budget.h"
#include "server/sockets/http2_connection.h"
#include "server/sockets/unix_socket.h"
#include "server/storage/storage_options.h"
#include "tiers/base/units.h"

namespace kvkeep {

// One tenant's sockets, and its part of G2 and of other limits.
struct TenantListener {
  std::string name;         // empty: the default tenant
  UnixSocketOptions grpc;   // SOCK_STREAM
  UnixSocketOptions local;  // SOCK_SEQPACKET; path empty: off
  UnixSocketOptions bulk;   // SOCK_STREAM; likewise
  double g2_share = 1;      // as configured; the default tenant's: what is left
  uint64_t g2_segments = 0;
  Grants grants = {};              // of both sockets
  uint64_t connections = 0;        // of grpc; 0: DaemonOptions::max_connections
  uint32_t local_connections = 0;  // of local; 0: all that LocalLimits allows
  uint64_t staging_bytes = 0;      // by local; likewise
  double gpu_part = 1;             // by local: of what all may have of the GPU path
  GpuRights gpu_rights = {};       // likewise
  uint64_t message_bytes = 0;      // by local; 0: all that LocalLimits allows
  TenantCredentials credentials = {};
};

// The other nodes of the fleet, and what this one serves to them.
struct PeersOptions {
  std::string node;                // this one's name; empty: there are no peers
  std::vector<std::string> peers;  // "NAME=HOST:PORT"
  std::string peers_file, ca_file;
  uint64_t serve_bytes_per_second = 0;           // 0: nothing is served
  uint64_t serve_pinned_bytes = 0;               // of G2, at once
  absl::flat_hash_set<uint32_t> shared_tenants;  // by TenantTagOf
};

struct DaemonOptions {
  StorageOptions storage;
  std::vector<TenantListener> tenants = {TenantListener{}};  // by TenantId; 0 is the default one
  GpuMode gpu = GpuMode::kAuto;
  LocalLimits local;
  uint64_t max_connections = 4096;       // of one gRPC socket, and by TCP
  uint64_t max_address_connections = 0;  // by TCP, from one address; 0: as all
  uint64_t receive_memory_bytes = 512 * kMiB;
  Http2Limits http2;
  PinBudget::Limits pinned;
  std::chrono::milliseconds stall_timeout{30'000};
  std::chrono::milliseconds peer_timeout{30'000};
  std::string admin_socket_path;
  std::string tcp_address, bulk_tcp_address;        // empty: off
  std::chrono::milliseconds tcp_connection_age{0};  // 0: any
  TlsFiles tls;                                     // of it; cert_file empty: plaintext
  std::vector<std::string> admin_certificate_names;
  PeersOptions peers;                    // of it, by TLS
  std::string metrics_address;           // empty: off
  UnixSocketOptions metrics_socket;      // path empty: none
  std::string metrics_token_file;        // empty: no token is known
  std::vector<PublisherOptions> events;  // a tenant each; of those whose chunks are told of
  std::chrono::milliseconds drain_timeout{0};
  bool drain_to_peers = false;
  LogFormat log_format = LogFormat::kLogfmt;
  spdlog::level::level_enum log_level = spdlog::level::info;
  std::chrono::milliseconds slow_operation{1'000};  // 0: none is slow
};

// Every component's options, validated. InvalidArgument names the config's key and what to do.
absl::StatusOr<DaemonOptions> ToDaemonOptions(const Config& config);

// Checks that clients can connect to the TCP address: host:port with a port of 1 to 65535.
// config/access_check.cc checks which hosts are safe.
absl::Status CheckTcpAddress(absl::string_view address);

}  // namespace kvkeep
