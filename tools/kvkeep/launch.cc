#include "tools/kvkeep/launch.h"

#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"

namespace kvkeep::tools {
namespace {

namespace fs = std::filesystem;

constexpr off_t kMostLogBytes = static_cast<off_t>(kMiB);

bool IsProgram(const std::string& path) {
  struct stat there {};
  return stat(path.c_str(), &there) == 0 && S_ISREG(there.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

absl::Status Failed(const std::string& what, int why) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(why));
  return why == EACCES ? absl::PermissionDeniedError(message) : absl::UnavailableError(message);
}

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<UniqueFd> OpenLog(const std::string& log) {
  struct stat there {};
  if (stat(log.c_str(), &there) == 0 && there.st_size > kMostLogBytes) {
    rename(log.c_str(), absl::StrCat(log, ".1").c_str());
  }
  UniqueFd fd(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Failed(log, errno);
  return fd;
}

struct Peer {
  UniqueFd connection;  // while it is not hung up, the number is still the peer's
  pid_t pid = 0;
};

absl::StatusOr<Peer> PeerAt(const std::string& endpoint) {
  absl::string_view path = endpoint;
  if (!absl::ConsumePrefix(&path, "unix://") && !absl::ConsumePrefix(&path, "unix:")) {
    return absl::InvalidArgumentError(
        absl::StrCat(endpoint, " is no Unix socket: only a daemon of this machine can be stopped"));
  }
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(endpoint, ": no path of a socket"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  Peer peer{.connection = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  if (!peer.connection.valid()) return Failed("socket", errno);
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  if (connect(peer.connection.get(), to, sizeof(address)) != 0) {
    const int why = errno;
    return Failed(why == EACCES ? absl::StrCat("this user may not connect to ", endpoint,
                                               " (listen.socket_group says who may)")
                                : absl::StrCat("no daemon answers at ", endpoint),
                  why);
  }
  ucred who{};
  socklen_t size = sizeof(who);
  if (getsockopt(peer.connection.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return Failed("SO_PEERCRED", errno);
  }
  if (who.pid <= 0) {
    return absl::FailedPreconditionError(
        "the daemon runs in another container: stop it where it runs");
  }
  peer.pid = who.pid;
  return peer;
}

// Returns the path as a word of ExecStart= (systemd.service(5), systemd.syntax(7)).
absl::StatusOr<std::string> InUnit(const std::string& path) {
  const bool is_plain =
      std::none_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!is_plain || !absl::StartsWith(path, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("a unit of systemd cannot name the path '", absl::CHexEscape(path), "'"));
  }
  return absl::StrCat(
      "\"", absl::StrReplaceAll(path, {{"%", "%%"}, {"$", "$$"}, {"\\", "\\\\"}, {"\"", "\\\""}}),
      "\"");
}

}  // namespace

const char kUnitIsOurs[] = "# Written by `kvkeep up --service`.";

absl::StatusOr<std::string> FindDaemonBinary() {
  std::vector<std::string> dirs;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) dirs.push_back(self.parent_path().string());
  if (const char* const path = std::getenv("PATH")) {
    for (const absl::string_view dir : absl::StrSplit(path, ':', absl::SkipEmpty())) {
      dirs.emplace_back(dir);
    }
  }
  for (const std::string& dir : dirs) {
    const std::string binary = absl::StrCat(dir, "/kvkeepd");
    if (IsProgram(binary)) return binary;
  }
  return absl::NotFoundError("kvkeepd is neither beside kvkeep nor in $PATH: install it");
}

absl::StatusOr<pid_t> StartDetached(const LaunchOptions& options) {
  signal(SIGCHLD, SIG_DFL);  // a parent may have ignored it: then no child can be waited for
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd log, OpenLog(options.log));
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing.valid()) return Failed("/dev/null", errno);
  const std::vector<std::string> words = {options.binary, "--config", options.config};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, nothing.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, log.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, log.get(), STDERR_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t child = 0;
  const int why = posix_spawn(&child, options.binary.c_str(), &files, &attributes,
                              Pointers(words).data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (why != 0) return Failed(options.binary, why);
  return child;
}

bool HasEnded(pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; }

absl::Status BecomeDaemon(const std::string& binary, const std::string& config) {
  execv(binary.c_str(), Pointers({binary, "--config", config}).data());
  return Failed(binary, errno);
}

std::string LastLines(const std::string& file, int lines) {
  std::ifstream from(file);
  std::vector<std::string> last;
  for (std::string line; std::getline(from, line);) {
    last.push_back(line);
    if (last.size() > static_cast<size_t>(lines)) last.erase(last.begin());
  }
  return absl::StrJoin(last, "\n");
}

absl::StatusOr<pid_t> ListenerOf(const std::string& endpoint) {
  KVKEEP_ASSIGN_OR_RETURN(const Peer peer, PeerAt(endpoint));
  return peer.pid;
}

absl::Status StopListener(const std::string& endpoint, std::chrono::milliseconds patience) {
  KVKEEP_ASSIGN_OR_RETURN(const Peer peer, PeerAt(endpoint));
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!process.valid()) return Failed("pidfd_open", errno);
  pollfd connected{.fd = peer.connection.get(), .events = 0, .revents = 0};
  if (poll(&connected, 1, 0) > 0) {
    return absl::UnavailableError(absl::StrCat("the daemon at ", endpoint, " has just ended"));
  }
  if (syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0) != 0) {
    return Failed(absl::StrCat("process ", peer.pid), errno);
  }
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  const int polled = poll(&ended, 1, static_cast<int>(patience.count()));
  if (polled > 0) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("process ", peer.pid, " still stops after ", patience.count(), " ms"));
}

absl::Status RunProgram(const std::vector<std::string>& words) {
  signal(SIGCHLD, SIG_DFL);
  pid_t child = 0;
  const int why =
      posix_spawnp(&child, words[0].c_str(), nullptr, nullptr, Pointers(words).data(), environ);
  if (why != 0) return Failed(words[0], why);
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("`", absl::StrJoin(words, " "), "` failed"));
}

absl::StatusOr<std::string> ServiceUnit(const std::string& binary, const std::string& config,
                                        bool is_root) {
  KVKEEP_ASSIGN_OR_RETURN(const std::string program, InUnit(binary));
  KVKEEP_ASSIGN_OR_RETURN(const std::string file, InUnit(config));
  return absl::StrCat(kUnitIsOurs,
                      "\n"
                      "[Unit]\n"
                      "Description=KV cache of this node's inference engines\n"
                      "After=local-fs.target network.target\n"
                      "StartLimitIntervalSec=10min\n"
                      "StartLimitBurst=5\n"
                      "\n"
                      "[Service]\n"
                      "Type=notify\n"
                      "NotifyAccess=main\n"
                      "ExecStart=",
                      program, " --config ", file,
                      "\n"
                      "ExecReload=/bin/kill -HUP $MAINPID\n"
                      "Restart=on-failure\n"
                      "RestartSec=1s\n"
                      "# 78: the configuration is wrong.\n"
                      "RestartPreventExitStatus=78\n"
                      "TimeoutStartSec=90s\n"
                      "TimeoutStopSec=30s\n"
                      "WatchdogSec=30s\n"
                      "UMask=0077\n"
                      "LimitCORE=0\n",
                      is_root ? "LimitMEMLOCK=infinity\nLimitNOFILE=1048576\n" : "",
                      "NoNewPrivileges=yes\n"
                      "\n"
                      "[Install]\n"
                      "WantedBy=",
                      is_root ? "multi-user.target" : "default.target", "\n");
}

}  // namespace kvkeep::tools
