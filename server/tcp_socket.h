// Listening sockets of a TCP address. We accept ourselves and give gRPC the connections: its own
// listener of 1.51 closes for good when the process is once out of descriptors.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <vector>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// One for each address that `address`, host:port, stands for; non-blocking, close-on-exec. Their
// connections have no delay, and end when what was sent is not confirmed for `peer_timeout`.
// Unavailable: one of them cannot be had.
absl::StatusOr<std::vector<UniqueFd>> ListenOnTcp(absl::string_view address,
                                                  std::chrono::milliseconds peer_timeout);

}  // namespace kvkeep
