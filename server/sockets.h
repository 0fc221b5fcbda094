// Socket files and the lock of the state directory: two daemons never share either.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <string>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

// How many may wait to be accepted, on each of the daemon's sockets.
inline constexpr int kListenBacklog = 1024;

// Creates `dir` and its missing parents, mode 0700; one that is there is left as it is.
absl::Status MakePrivateDirectory(const std::string& dir);

// Where the daemon keeps its secrets: made if missing, checked (tiers/base/own_directory.h) and
// given mode 0700. InvalidArgument when it is another user's, or others may write to it.
absl::Status PrepareStateDirectory(const std::string& dir);

// An exclusive lock on `dir`, held until the descriptor is closed. Unavailable when another daemon
// holds it.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& dir);

// Makes room to listen on a Unix socket: creates its directory, removes the file of a dead daemon.
// Unavailable when a live one answers on it; InvalidArgument when the path cannot be a socket's.
absl::Status PrepareSocketPath(const std::string& path);
absl::Status SetSocketMode(const std::string& path, mode_t mode);

}  // namespace kvkeep
