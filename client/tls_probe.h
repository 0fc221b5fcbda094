// Why a connection over TLS does not come about, in words: gRPC's own are the same for nearly all
// causes. Internal.
#pragma once

#include <chrono>
#include <string>

#include "client/security.h"

namespace kvkeep::client {

// Makes a handshake of its own with host:port and says what is wrong with it: the daemon's
// certificate (expired, another CA, another name), ours (none, expired, another CA), or that it is
// no TLS that is spoken there. Empty: nothing is wrong with TLS, or nobody listens. Blocks for
// `timeout` at most, names being resolved aside. Decides nothing: the connection that counts is
// gRPC's.
std::string ExplainTls(const std::string& endpoint, const SecurityOptions& options,
                       std::chrono::milliseconds timeout);

}  // namespace kvkeep::client
