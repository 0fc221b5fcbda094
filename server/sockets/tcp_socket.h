// Listening sockets of a TCP address. kvkeepd accepts connections itself and gives them to gRPC:
// the listener of gRPC 1.51 closes for good once the process runs out of descriptors.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// Returns a socket for each address that `address`, host:port, stands for; non-blocking,
// close-on-exec. Their connections have no delay, and end when sent data is not acknowledged for
// `peer_timeout`. Unavailable: one of the sockets cannot be had.
absl::StatusOr<std::vector<UniqueFd>> ListenOnTcp(absl::string_view address,
                                                  std::chrono::milliseconds peer_timeout);

// Returns the address that a connection counts for in limits: an IPv4 address, or the first 64 bits
// of an IPv6 address, which one site has. Empty: not by TCP.
std::string TcpPeerAddress(const sockaddr_storage& peer);

}  // namespace kvkeep
