// Explains why a connection over TLS fails: gRPC has the same message for nearly all causes.
// Internal.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <string>

#include "client/values/security.h"

namespace kvkeep::client {

// Returns `why`, unless it is UNAVAILABLE over TLS: then makes a handshake of its own with
// host:port and returns what is wrong: the daemon's certificate (expired, another CA, another
// name), ours (none, expired, another CA), or that the other side does not speak TLS. Returns `why`
// if nothing is wrong with TLS, or nobody listens. Blocks for 2 s, or `patience` if that is less,
// besides resolving names. Decides nothing: gRPC makes the connection that counts.
absl::Status ExplainedByTls(absl::Status why, const std::string& endpoint,
                            const SecurityOptions& options, std::chrono::milliseconds patience);

}  // namespace kvkeep::client
