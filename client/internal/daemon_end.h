// DaemonEnd: the socket of a session, kept to know when the daemon has closed its end. That may be
// long after the session, and after its mappings are gone: this keeps none of them.
//
// Thread-safe.
#pragma once

#include <utility>

#include "client/internal/fork_guard.h"

namespace kvkeep::client {

class DaemonEnd {
 public:
  explicit DaemonEnd(GuardedFd socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  // Whether the daemon has closed it: nothing that was put on this connection can be stored any
  // more (protocol.h, "The end").
  bool Left() const;

 private:
  const GuardedFd socket_;
  const ForkMark mark_;
};

}  // namespace kvkeep::client
