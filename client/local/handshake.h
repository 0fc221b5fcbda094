// Greet: opens a session at a socket's path: Hello, Welcome, segments, mappings.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "client/internal/fork_guard.h"
#include "client/internal/mappings.h"
#include "proto/local/protocol.h"

namespace kvkeep::client {

struct Greeting {
  local::Welcome welcome;
  // The most that the daemon's clock may differ from ours; none: it is another clock, or not known.
  std::optional<std::chrono::nanoseconds> clock_doubt;
  local::ChunkLimit chunk_limit{.max_payload_bytes = kMaxPayloadBytes};
  std::shared_ptr<Mappings> mappings;  // holds the socket
  GuardedFd events;
};

struct GreetingOptions {
  std::string socket;
  std::string client_name;
  // The arena of the session before; segments that are still the same files are reused.
  std::shared_ptr<const ArenaMap> known_arena;
  std::chrono::steady_clock::time_point deadline;
  const std::atomic<bool>* stop = nullptr;  // once true, gives up soon with CANCELLED
};

// NOT_FOUND: there is no such socket. PERMISSION_DENIED: we may not connect. UNIMPLEMENTED: no
// version in common, or not a socket of this kind. UNAVAILABLE: nobody listens, it hung up, or no
// answer came by the deadline. INVALID_ARGUMENT: the path is too long, or not all descriptors came.
// INTERNAL: it broke the protocol. Any other error is the daemon's refusal, or the system's.
absl::StatusOr<Greeting> Greet(const GreetingOptions& options);

}  // namespace kvkeep::client
