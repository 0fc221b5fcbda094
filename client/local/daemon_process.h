// DaemonProcess: whether the process at the other end of a connection has certainly ended.
//
// That its socket was closed is not enough where it writes into memory that it has opened: a copy
// by the GPU's driver may still be under way. A pidfd, taken while the connection lives, tells.
// Thread-safe.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <utility>

#include "client/local/fork_guard.h"
#include "client/local/mappings.h"

namespace kvkeep::client {

class DaemonProcess {
 public:
  // A descriptor that is readable once the process at the socket's other end has ended.
  using Watch = std::function<absl::StatusOr<UniqueFd>(int socket)>;
  // The kernel's: SO_PEERPIDFD, or pidfd_open of the process that SO_PEERCRED names.
  // FAILED_PRECONDITION: it tells of none, as from another PID namespace on kernels before 6.5.
  static absl::StatusOr<UniqueFd> OpenPidfd(int socket);

  // UNAVAILABLE: the connection is over, so that whom the kernel named may be another one.
  static absl::StatusOr<std::shared_ptr<const DaemonProcess>> Of(const Mappings& connection,
                                                                 const Watch& watch);

  explicit DaemonProcess(UniqueFd pidfd) : pidfd_(std::move(pidfd)) {}
  bool Ended() const;

 private:
  const GuardedFd pidfd_;
};

}  // namespace kvkeep::client
