// Connects to a daemon's TCP address. Internal; no state.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <string>

#include "tiers/base/unique_fd.h"

namespace kvkeep::client {

// Returns a non-blocking connection, without delay of small packets, to "host:port": to the first
// of its addresses where somebody listens. Blocks until `give_up`, besides resolving the name.
// Unavailable: nobody listens there in time, or the name is not known.
absl::StatusOr<UniqueFd> ConnectTcp(const std::string& endpoint,
                                    std::chrono::steady_clock::time_point give_up);
// Waits until one of the events of poll(2) has come. Returns false if it was too late.
bool AwaitReady(int fd, short events, std::chrono::steady_clock::time_point give_up);

}  // namespace kvkeep::client
