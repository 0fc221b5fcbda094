// ClientOptions: how a client reaches its daemon. A plain value.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "client/values/security.h"
#include "client/values/types.h"

namespace kvkeep::client {

struct ClientOptions {
  std::string endpoint;     // "unix:///path" (path at most 107 bytes) or "host:port"
  std::string client_name;  // shown in the daemon's status; at most 128 bytes, UTF-8
  Deadline default_deadline{5'000};
  Deadline backoff_min{50};  // before the first try to reconnect; doubles, with jitter
  Deadline backoff_max{2'000};
  // Local path: how long a thread that waits for a reply polls for it before it sleeps, while that
  // pays (tiers/base/busy_poll.h). Longer than the daemon's own poll, as the daemon may be asleep.
  // 0: never.
  std::chrono::microseconds busy_poll{100};
  PathChoice path = PathChoice::kAuto;
  std::string local_socket;  // of the local path; empty: local.sock beside the Unix socket
  // The daemon's listen.bulk or listen.bulk_tcp, "unix:///path" or "host:port": gets and puts that
  // would go by gRPC go there, and by gRPC while nobody answers there. Empty: by gRPC.
  std::string bulk;
  uint32_t channels = 1;     // connections for gets and puts, 1 to 16; the end of gRPC's ends all
  SecurityOptions security;  // of a "host:port" endpoint
  // TCP only: after this long without a reply the session is closed.
  Deadline peer_timeout{30'000};
  absl::Status Validate() const;
};

// Returns the local path's socket; empty if there can be none, as the endpoint is no Unix socket.
std::string LocalSocketOf(const ClientOptions& options);

}  // namespace kvkeep::client
