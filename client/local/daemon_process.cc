#include "client/local/daemon_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

constexpr int kSoPeerPidfd = 77;  // Linux 6.5: newer than our headers
constexpr long kPidfdOpen = 434;  // Linux 5.3: as well

}  // namespace

absl::StatusOr<UniqueFd> DaemonProcess::OpenPidfd(int socket) {
  int pidfd = -1;
  socklen_t bytes = sizeof(pidfd);
  if (getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &pidfd, &bytes) == 0) return UniqueFd(pidfd);
  ucred peer{};
  bytes = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return absl::ErrnoToStatus(errno, "SO_PEERCRED");
  }
  if (peer.pid <= 0) {
    return absl::FailedPreconditionError(
        "GPU path: the kernel does not tell which process the daemon is (another PID namespace, "
        "Linux before 6.5), so nobody would know when its copies have ended");
  }
  UniqueFd opened(static_cast<int>(syscall(kPidfdOpen, peer.pid, 0)));
  if (!opened.valid()) return absl::ErrnoToStatus(errno, "pidfd_open of the daemon");
  return opened;
}

absl::StatusOr<std::shared_ptr<const DaemonProcess>> DaemonProcess::Of(const Mappings& connection,
                                                                       const Watch& watch) {
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd pidfd, watch(connection.socket()));
  // Its end is still open: so far nobody else can have had its number.
  if (!connection.Alive()) return absl::UnavailableError("GPU path: the session is over");
  return std::make_shared<const DaemonProcess>(std::move(pidfd));
}

bool DaemonProcess::Ended() const {
  pollfd state{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return poll(&state, 1, 0) == 1 && (state.revents & POLLIN) != 0;
}

}  // namespace kvkeep::client
