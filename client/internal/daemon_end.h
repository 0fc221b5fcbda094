// DaemonEnd: the socket of a session, kept to know when the daemon has closed its end. It may
// outlive the session and its mappings, and keeps neither.
//
// Thread-safe.
//
// DaemonEnds: the daemon ends that may still read memory named by puts. The owner locks it.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "client/internal/fork_guard.h"

namespace kvkeep::client {

class DaemonEnd {
 public:
  explicit DaemonEnd(GuardedFd socket) : socket_(std::move(socket)) {}

  int socket() const { return socket_.get(); }
  // Returns whether the daemon has closed it: then no put on this connection can be stored any more
  // (protocol.h, "The end").
  bool Left() const;

 private:
  const GuardedFd socket_;
  const ForkMark mark_;
};

class DaemonEnds {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // `until`: the daemon does not store what it reads later; Time::max(): there is no such time.
  void Add(std::shared_ptr<const DaemonEnd> connection, Time until = Time::max());
  // Forgets the ends that have left, or whose time is over, and returns whether none remains.
  bool empty();

 private:
  struct Entry {
    std::shared_ptr<const DaemonEnd> connection;
    Time until;
  };
  std::vector<Entry> entries_;  // one for each connection
};

}  // namespace kvkeep::client
