// DaemonProcess: says whether the process at the other end of a connection has certainly ended.
//
// A closed socket does not prove it if the daemon writes into memory that it has opened: a copy by
// the GPU's driver may still be under way. A pidfd, taken while the connection lives, does.
// Thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "client/internal/fork_guard.h"
#include "client/internal/mappings.h"

namespace kvkeep::client {

class DaemonProcess {
 public:
  // Returns a descriptor that is readable once the process at the socket's other end has ended.
  using Watch = std::function<absl::StatusOr<UniqueFd>(int socket)>;
  // The Watch of the kernel: SO_PEERPIDFD, or pidfd_open of the process that SO_PEERCRED names.
  // FAILED_PRECONDITION: the kernel names none, as for another PID namespace before Linux 6.5.
  static absl::StatusOr<UniqueFd> OpenPidfd(int socket);

  // UNAVAILABLE: the connection is over, so the kernel may have named another process.
  static absl::StatusOr<std::shared_ptr<const DaemonProcess>> Of(const Mappings& connection,
                                                                 const Watch& watch);

  explicit DaemonProcess(UniqueFd pidfd);
  bool Ended() const;
  // Returns whether a process that was watched later is certainly this one. Always false for a
  // process in another PID namespace before Linux 6.9.
  bool IsAlso(const DaemonProcess& later) const;

 private:
  // A number of the process: unique since the machine started (`for_ever`), or its PID.
  struct Identity {
    bool for_ever = false;
    uint64_t number = 0;  // 0: not known
  };
  static Identity IdentityOf(int pidfd);

  const GuardedFd pidfd_;
  const Identity identity_;
};

// A set of daemon processes that may not have ended, each process once.
class DaemonProcesses {
 public:
  void Add(std::shared_ptr<const DaemonProcess> daemon);
  // Forgets processes that have ended, and returns whether none remains.
  bool empty();
  size_t size() const { return daemons_.size(); }

 private:
  std::vector<std::shared_ptr<const DaemonProcess>> daemons_;
};

}  // namespace kvkeep::client
