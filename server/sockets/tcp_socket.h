// Listening sockets of a TCP address. We accept ourselves and give gRPC the connections: its own
// listener of 1.51 closes for good when the process is once out of descriptors.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// One for each address that `address`, host:port, stands for; non-blocking, close-on-exec. Their
// connections have no delay, and end when what was sent is not confirmed for `peer_timeout`.
// Unavailable: one of them cannot be had.
absl::StatusOr<std::vector<UniqueFd>> ListenOnTcp(absl::string_view address,
                                                  std::chrono::milliseconds peer_timeout);

// Whose connection it is, as far as limits go: an IPv4 address, or the first 64 bits of an IPv6
// one, which is what one site has. Empty: not by TCP.
std::string TcpPeerAddress(const sockaddr_storage& peer);

}  // namespace kvkeep
