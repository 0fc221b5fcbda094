// Socket files and the lock of the state directory: two daemons never share either.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <string>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// The most connections that may wait to be accepted, on each of the daemon's sockets.
inline constexpr int kListenBacklog = 1024;

// Creates `dir` and its missing parents with this mode; existing ones are left as they are.
absl::Status MakeDirectory(const std::string& dir, mode_t mode);

// Prepares the directory of the daemon's secrets: makes it if missing, checks it
// (tiers/base/own_directory.h) and sets its mode to 0700. InvalidArgument when it is another
// user's, or others may write to it.
absl::Status PrepareStateDirectory(const std::string& dir);

// Returns an exclusive lock on `dir`, held until the descriptor is closed. Unavailable when another
// daemon holds it.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& dir);

// Modes of directories made for sockets: for sockets of the daemon's user alone, and for sockets of
// others, whose own mode and group tell who may connect.
inline constexpr mode_t kPrivateDirectoryMode = 0700, kSharedDirectoryMode = 0711;
inline mode_t DirectoryModeFor(mode_t socket_mode) {
  return (socket_mode & 0077) != 0 ? kSharedDirectoryMode : kPrivateDirectoryMode;
}

// Makes room to listen on a Unix socket: creates its directory, removes the file of a dead daemon.
// Unavailable when a live daemon answers on it; InvalidArgument when the path cannot be a socket's.
absl::Status PrepareSocketPath(const std::string& path,
                               mode_t directory_mode = kPrivateDirectoryMode);
absl::Status SetSocketMode(const std::string& path, mode_t mode);

}  // namespace kvkeep
