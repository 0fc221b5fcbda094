// Why a connection over TLS does not come about, in words: gRPC's own are the same for nearly all
// causes. Internal.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <string>

#include "client/values/security.h"

namespace kvkeep::client {

// `why`, unless it is UNAVAILABLE over TLS: then it makes a handshake of its own with host:port and
// says what is wrong with it: the daemon's certificate (expired, another CA, another name), ours
// (none, expired, another CA), or that it is no TLS that is spoken there. Still `why` where nothing
// is wrong with TLS, or nobody listens. Blocks for 2 s, or `patience` if that is less, names being
// resolved aside. Decides nothing: the connection that counts is gRPC's.
absl::Status ExplainedByTls(absl::Status why, const std::string& endpoint,
                            const SecurityOptions& options, std::chrono::milliseconds patience);

}  // namespace kvkeep::client
