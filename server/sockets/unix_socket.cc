#include "server/sockets/unix_socket.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "server/sockets/sockets.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr int kSoPeerPidfd = 77;  // Linux 6.5: newer than our headers
constexpr int kSoPassRights = 83;  // Linux 6.16

bool KernelMayRefuseDescriptors() {
  static const bool may = std::getenv("KVKEEPD_ANY_DESCRIPTOR") == nullptr;
  return may;
}

absl::Status HasEnded() { return absl::CancelledError("the process at the other end has ended"); }

absl::StatusOr<gid_t> FindGroup(const std::string& group) {
  gid_t gid = 0;
  if (absl::SimpleAtoi(group, &gid)) return gid;
  std::vector<char> buffer(16384);
  struct group entry {};
  struct group* found = nullptr;
  if (getgrnam_r(group.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("group \"", group, "\": there is none"));
  }
  return found->gr_gid;
}

}  // namespace

std::string PeerCredentials::ToString() const {
  return absl::StrCat("pid=", pid, " uid=", uid, " gid=", gid);
}

absl::Status PeerPolicy::Check(const PeerCredentials& peer) const {
  if (uids.empty() && gids.empty()) return absl::OkStatus();
  if (std::find(uids.begin(), uids.end(), peer.uid) != uids.end()) return absl::OkStatus();
  if (std::find(gids.begin(), gids.end(), peer.gid) != gids.end()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      peer.ToString(), " may not use this socket: allowed_uids is [", absl::StrJoin(uids, ", "),
      "], allowed_gids is [", absl::StrJoin(gids, ", "), "]"));
}

absl::StatusOr<UniqueFd> ListenOnUnixSocket(const UnixSocketOptions& options, int type) {
  KVKEEP_RETURN_IF_ERROR(PrepareSocketPath(options.path, DirectoryModeFor(options.mode)));
  const auto failed = [&](const char* what) {
    return absl::UnavailableError(
        absl::StrCat(options.path, ": cannot ", what, ": ", std::strerror(errno)));
  };
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return failed("make a socket");
  TakeDescriptors(fd.get(), false);  // connections begin as their listener is
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, options.path.data(), options.path.size());
  // Nobody can connect before listen(2), so the mode is right before it matters.
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return failed("bind");
  }
  if (!options.group.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(const gid_t gid, FindGroup(options.group));
    if (chown(options.path.c_str(), static_cast<uid_t>(-1), gid) != 0) return failed("set group");
  }
  KVKEEP_RETURN_IF_ERROR(SetSocketMode(options.path, options.mode));
  if (listen(fd.get(), kListenBacklog) != 0) return failed("listen");
  return fd;
}

bool TakeDescriptors(int socket, bool take) {
  if (!KernelMayRefuseDescriptors()) return false;
  const int value = take ? 1 : 0;
  return setsockopt(socket, SOL_SOCKET, kSoPassRights, &value, sizeof(value)) == 0;
}

absl::StatusOr<PeerCredentials> PeerOf(int connected_socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(connected_socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return absl::UnavailableError(absl::StrCat("SO_PEERCRED: ", std::strerror(errno)));
  }
  return PeerCredentials{.pid = peer.pid, .uid = peer.uid, .gid = peer.gid};
}

absl::StatusOr<UniqueFd> WatchPeer(int connected_socket) {
  int pidfd = -1;  // close-on-exec by itself, as is the other one
  socklen_t length = sizeof(pidfd);
  if (getsockopt(connected_socket, SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) != 0) {
    // Current kernels answer for ended processes, too; from 6.5 on it was an error at first.
    if (errno == ESRCH || errno == EINVAL) return HasEnded();
    if (errno != ENOPROTOOPT) return UniqueFd();
    const absl::StatusOr<PeerCredentials> peer = PeerOf(connected_socket);
    if (!peer.ok() || peer->pid <= 0) return UniqueFd();
    pidfd = static_cast<int>(syscall(SYS_pidfd_open, peer->pid, 0));
    if (pidfd < 0 && errno == ESRCH) return HasEnded();
  }
  return UniqueFd(pidfd);
}

}  // namespace kvkeep
