// Ports of 127.0.0.1 for a test's servers.
//
// They lie below the kernel's ephemeral ports: a test chooses its server's port some time before
// the server binds it, and a connection of another test must not take it. They are random, as tests
// run side by side.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tiers/base/random.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

// A TCP socket bound to a free port, not listening.
inline UniqueFd BindFreePort(int* port) {
  constexpr int kFirst = 10'000;  // other servers like the ports below
  int end = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bool bound = false;
  for (int tries = 0; tries < 100 && !bound; ++tries) {
    // Falls back to 0, any port, if the kernel's range begins too low, or all tried ports are
    // taken.
    uint64_t wanted = 0;
    if (end > kFirst + 1'000 && tries < 99) {
      wanted = kFirst + RealRandom()->NextU64() % static_cast<uint64_t>(end - kFirst);
    }
    address.sin_port = htons(static_cast<uint16_t>(wanted));
    bound = bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0;
  }
  REQUIRE(bound);
  REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  *port = ntohs(address.sin_port);
  return fd;
}

// Returns a port that was free just now.
inline int FreePort() {
  int port = 0;
  BindFreePort(&port);
  return port;
}

}  // namespace kvkeep
