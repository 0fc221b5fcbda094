// Unix sockets that know their peers: which may connect, and which did. Used by every listener.
//
// The peer's identity comes from the kernel (SO_PEERCRED), as of connect(2), never from the client.
// No state; thread-safe.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

struct PeerCredentials {
  pid_t pid = 0;  // in our PID namespace; 0: not visible from here
  uid_t uid = 0;
  gid_t gid = 0;

  std::string ToString() const;  // "pid=1 uid=2 gid=3"
};

// Peers that may use a socket. A peer passes when its uid or its gid is listed; with both lists
// empty every peer passes that the socket's mode lets connect. root and the daemon's own user are
// no exception.
struct PeerPolicy {
  std::vector<uid_t> uids;
  std::vector<gid_t> gids;

  // PermissionDenied names the peer and the setting that would let it in.
  absl::Status Check(const PeerCredentials& peer) const;
};

struct UnixSocketOptions {
  std::string path;
  mode_t mode = 0660;
  std::string group;  // name or number that owns the socket file; empty: the daemon's
  PeerPolicy policy;
};

// Listens on options.path with `type` (SOCK_STREAM, SOCK_SEQPACKET), non-blocking, close-on-exec.
// The file is never there with a wider mode than asked for. InvalidArgument: the path or group is
// wrong. Unavailable: another daemon uses it, or it cannot be made.
absl::StatusOr<UniqueFd> ListenOnUnixSocket(const UnixSocketOptions& options, int type);

// Sets whether peers of this socket may pass descriptors (SO_PASSRIGHTS): if not, the sender's call
// fails and nothing is queued. ListenOnUnixSocket's connections take none until told. Returns false
// if the kernel cannot refuse them (before Linux 6.16), or must not, as the environment has
// KVKEEPD_ANY_DESCRIPTOR, for tests.
bool TakeDescriptors(int socket, bool take);

// Returns the peer's credentials. Unavailable: the kernel does not tell.
absl::StatusOr<PeerCredentials> PeerOf(int connected_socket);

// Returns a descriptor that becomes readable when the process that connected ends, even if others
// inherited its sockets. Not valid: the process cannot be watched (another PID namespace before
// Linux 6.5, no descriptor left). Cancelled: the process has ended. Before Linux 6.5 the process is
// found by its number, which may be another's by now if the process has ended.
absl::StatusOr<UniqueFd> WatchPeer(int connected_socket);

}  // namespace kvkeep
