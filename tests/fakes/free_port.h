// Ports of 127.0.0.1 for a test's servers.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// A TCP socket bound to a free port, not listening.
inline UniqueFd BindFreePort(int* port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  *port = ntohs(address.sin_port);
  return fd;
}

// One that was free just now.
inline int FreePort() {
  int port = 0;
  BindFreePort(&port);
  return port;
}

}  // namespace kvkeep
