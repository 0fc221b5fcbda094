// LingeringSockets: descriptors whose last close waits. Each is a TCP connection over loopback with
// bytes that its peer never reads, and SO_LINGER: the last close waits until they are read, for 100
// seconds at most. End resets all connections, which ends the waits.
//
// Throws std::runtime_error if it cannot open sockets. One thread.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

class LingeringSockets {
 public:
  LingeringSockets() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    KeepSmall(listener_.get());
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    Expect(bind(listener_.get(), address, length) == 0 && listen(listener_.get(), 16) == 0 &&
           getsockname(listener_.get(), address, &length) == 0);
  }

  UniqueFd Make() {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    KeepSmall(fd.get());
    Expect(connect(fd.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(address_)) == 0);
    peers_.emplace_back(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Expect(peers_.back().valid() && fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0);
    const std::array<char, 4096> bytes{};
    while (send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    const linger patience{.l_onoff = 1, .l_linger = 100};
    Expect(setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &patience, sizeof(patience)) == 0);
    return fd;
  }
  void End() { peers_.clear(); }  // with bytes unread, so that the other end is reset

 private:
  static void Expect(bool happened) {
    if (!happened) throw std::runtime_error("LingeringSockets: no TCP connection over loopback");
  }
  static void KeepSmall(int fd) {
    const int bytes = 4096;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }

  UniqueFd listener_;
  sockaddr_in address_{};
  std::vector<UniqueFd> peers_;
};

}  // namespace kvkeep
