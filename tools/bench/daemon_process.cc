#include "tools/bench/daemon_process.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/server_program.h"

namespace kvkeep::bench {
namespace {

constexpr double kStartPatienceSeconds = 60;
constexpr std::chrono::milliseconds kPause{1};
constexpr size_t kLastWordsBytes = 2000;

bool SomebodyListens(const std::string& socket_path) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// One that was free just now.
absl::StatusOr<std::string> FreeLoopbackPort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return absl::ErrnoToStatus(errno, "a port of the loopback");
  }
  return absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
}

}  // namespace

absl::Status DaemonOptions::Validate() const {
  if (binary.empty()) return absl::InvalidArgumentError("daemon: say which kvkeepd to start");
  if (g2_bytes < kMiB) return absl::InvalidArgumentError("daemon: G2 of at least 1 MiB");
  if (arena_dir.empty() != arena_readonly_dir.empty()) {
    return absl::InvalidArgumentError("daemon: the arena wants both of its mounts, or none");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DaemonProcess>> DaemonProcess::Start(const DaemonOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  const std::string base = options.scratch_dir.empty()
                               ? std::filesystem::temp_directory_path().string()
                               : options.scratch_dir;
  std::string dir = absl::StrCat(base, "/kvkeep-bench-XXXXXX");
  if (mkdtemp(dir.data()) == nullptr) return absl::ErrnoToStatus(errno, dir);
  std::unique_ptr<DaemonProcess> daemon(new DaemonProcess(dir));
  if (options.tcp) {
    KVKEEP_ASSIGN_OR_RETURN(daemon->tcp_endpoint_, FreeLoopbackPort());
  }
  KVKEEP_RETURN_IF_ERROR(daemon->WriteConfig(options));
  const UniqueFd log(
      open((dir + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return absl::ErrnoToStatus(errno, dir + "/log");
  KVKEEP_ASSIGN_OR_RETURN(
      daemon->pid_, StartProgram({options.binary, "--config", dir + "/kvkeep.yaml"}, log.get()));
  KVKEEP_RETURN_IF_ERROR(daemon->AwaitServing(options.while_starting));
  return daemon;
}

absl::Status DaemonProcess::WriteConfig(const DaemonOptions& options) const {
  std::string yaml = absl::StrCat(
      "listen:\n  unix: ", dir_, "/kvkeep.sock\n  admin: ", dir_, "/admin.sock\n  local: ",
      local_socket(), "\n  tcp: \"", tcp_endpoint_, "\"\ng2:\n  capacity: ", options.g2_bytes,
      "\n  dirty_budget: 100%\n");
  if (options.copy_threads > 0) {
    absl::StrAppend(&yaml, "  copy_threads: ", options.copy_threads, "\n");
  }
  if (options.arena_dir.empty()) {
    absl::StrAppend(&yaml, "  arena: memfd\n");
  } else {
    absl::StrAppend(&yaml, "  arena: mount\n  arena_dir: ", options.arena_dir,
                    "\n  arena_readonly_dir: ", options.arena_readonly_dir, "\n");
  }
  absl::StrAppend(&yaml, "g3:\n  paths:", options.g3_bytes == 0 ? " []\n" : "\n");
  if (options.g3_bytes > 0) {
    absl::StrAppend(&yaml, "    - dir: ", dir_, "/nvme0\n      capacity: ", options.g3_bytes, "\n");
  }
  absl::StrAppend(&yaml, "  admission: ", options.g3_admission,
                  "\nlimits:\n  leased_bytes: 90%\n  reserved_bytes: 50%\n  staging: 100%\n",
                  "  leases_per_session: ", options.leases_per_session,
                  "\nmetrics:\n  listen: \"\"\nstate:\n  dir: ", dir_, "/state\n");
  std::ofstream file(dir_ + "/kvkeep.yaml");
  file << yaml;
  file.close();
  return file.good() ? absl::OkStatus()
                     : absl::UnavailableError(absl::StrCat("cannot write below ", dir_));
}

absl::Status DaemonProcess::AwaitServing(const std::function<void(int pid)>& while_starting) {
  const double give_up = WallSeconds() + kStartPatienceSeconds;
  while (!SomebodyListens(dir_ + "/kvkeep.sock")) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = 0;
      return absl::UnavailableError(absl::StrCat("kvkeepd ended: ", LastWords()));
    }
    if (WallSeconds() > give_up) {
      return absl::DeadlineExceededError(absl::StrCat("kvkeepd does not serve: ", LastWords()));
    }
    if (while_starting) while_starting(pid_);
    std::this_thread::sleep_for(kPause);  // for another process
  }
  ready_at_ = WallSeconds();
  return absl::OkStatus();
}

std::string DaemonProcess::LastWords() const {
  std::ostringstream text;
  text << std::ifstream(dir_ + "/log").rdbuf();
  const std::string log = text.str();
  return log.substr(log.size() - std::min(log.size(), kLastWordsBytes));
}

DaemonProcess::~DaemonProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

}  // namespace kvkeep::bench
