// Starts and stops a daemon of this machine: what `kvkeep up` and `kvkeep down` do with processes.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace kvkeep::tools {

// Returns the path of kvkeepd: beside this binary, else by $PATH.
absl::StatusOr<std::string> FindDaemonBinary();

struct LaunchOptions {
  std::string binary;
  std::string config;  // the file
  std::string log;     // gets what the daemon prints; one of over 1 MiB is renamed to LOG.1 first
};

// Starts a daemon that outlives this process and its terminal. The child is this process's until it
// ends.
absl::StatusOr<pid_t> StartDetached(const LaunchOptions& options);
// Returns whether a child that StartDetached started has ended, or is nobody's child any more.
bool HasEnded(pid_t child);
// Becomes the daemon. Returns only if that fails.
absl::Status BecomeDaemon(const std::string& binary, const std::string& config);
// Returns the last lines of a file, for a message.
std::string LastLines(const std::string& file, int lines);

// Returns the process that listens at a Unix socket ("unix:///run/..."), by SO_PEERCRED.
absl::StatusOr<pid_t> ListenerOf(const std::string& endpoint);
// Sends SIGTERM to the process that listens there and waits until it has ended, which a drain may
// delay. DeadlineExceeded: it still runs.
absl::Status StopListener(const std::string& endpoint, std::chrono::milliseconds patience);

// Runs a program and waits for it. Not ok: it cannot be run, or its exit code is not 0, or is not
// known.
absl::Status RunProgram(const std::vector<std::string>& words);

// The first line of ServiceUnit, which says that the file is ours.
extern const char kUnitIsOurs[];
// Returns the text of a systemd unit, of the system or of a user, that runs this binary with this
// file. InvalidArgument: one of them has a control character in its path, or is not absolute.
absl::StatusOr<std::string> ServiceUnit(const std::string& binary, const std::string& config,
                                        bool is_root);

}  // namespace kvkeep::tools
