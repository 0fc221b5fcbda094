#include "client/local/daemon_process.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>

#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

constexpr int kSoPeerPidfd = 77;  // Linux 6.5: newer than our headers
constexpr long kPidfdOpen = 434;  // Linux 5.3: newer than our headers, too
// Linux 6.9: pidfds have a file system of their own, with an inode for each process. Before, all
// of them have the same one.
constexpr decltype(statfs::f_type) kPidfsMagic = 0x50494446;

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
  // Its end is still open, so no other process can have had its number so far.
  if (!connection.Alive()) return absl::UnavailableError("GPU path: the session is over");
  return std::make_shared<const DaemonProcess>(std::move(pidfd));
}

DaemonProcess::DaemonProcess(UniqueFd pidfd)
    : pidfd_(std::move(pidfd)), identity_(IdentityOf(pidfd_.get())) {}

DaemonProcess::Identity DaemonProcess::IdentityOf(int pidfd) {
  struct statfs files {};
  struct stat file {};
  if (fstatfs(pidfd, &files) == 0 && files.f_type == kPidfsMagic && fstat(pidfd, &file) == 0) {
    return {.for_ever = true, .number = file.st_ino};
  }
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", pidfd));
  for (std::string line; std::getline(info, line);) {
    absl::string_view number = line;
    int pid = 0;  // negative: it has ended; 0: of another PID namespace
    if (absl::ConsumePrefix(&number, "Pid:") && absl::SimpleAtoi(number, &pid) && pid > 0) {
      return {.for_ever = false, .number = static_cast<uint64_t>(pid)};
    }
  }
  return {};
}

bool DaemonProcess::IsAlso(const DaemonProcess& later) const {
  const Identity &mine = identity_, &other = later.identity_;
  if (mine.number == 0 || mine.number != other.number || mine.for_ever != other.for_ever) {
    return false;
  }
  return mine.for_ever || !Ended();  // no other process gets its PID before that
}

bool DaemonProcess::Ended() const {
  pollfd state{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return poll(&state, 1, 0) == 1 && (state.revents & POLLIN) != 0;
}

void DaemonProcesses::Add(std::shared_ptr<const DaemonProcess> daemon) {
  std::erase_if(daemons_, [](const auto& known) { return known->Ended(); });
  if (daemon->Ended()) return;
  const bool known = std::any_of(daemons_.begin(), daemons_.end(), [&](const auto& one) {
    return one == daemon || one->IsAlso(*daemon);
  });
  if (!known) daemons_.push_back(std::move(daemon));
}

bool DaemonProcesses::empty() {
  std::erase_if(daemons_, [](const auto& known) { return known->Ended(); });
  return daemons_.empty();
}

}  // namespace kvkeep::client
