#include "server/sockets/sockets.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tiers/base/own_directory.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

absl::Status Failed(const std::string& path, const char* what, int error, const char* advice) {
  return absl::UnavailableError(
      absl::StrCat(path, ": ", what, ": ", std::strerror(error), "; ", advice));
}

// A killed daemon holds its lock until the kernel has freed its memory, which takes a while for a
// large arena. Meanwhile /proc shows no command line any more.
constexpr std::chrono::seconds kDyingHolderWait{60};
constexpr std::chrono::seconds kLockWait{1};

bool HolderIsDying(int lock_fd) {
  char pid[32] = {};
  if (pread(lock_fd, pid, sizeof(pid) - 1, 0) <= 0) return false;
  std::ifstream command_line(absl::StrCat("/proc/", std::strtol(pid, nullptr, 10), "/cmdline"));
  // Unreadable: the process just ended, or is in another PID namespace, which hides it.
  return command_line.is_open() && command_line.peek() == std::ifstream::traits_type::eof();
}

// Returns whether some process accepts connections there. An error: it cannot be determined.
absl::StatusOr<bool> SomebodyListens(const std::string& path) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Failed(path, "cannot make a socket", errno, "raise the descriptor limit");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return true;
  // A listener exists: its queue is full, or it is of another type, as the local path's is.
  if (errno == EAGAIN || errno == EPROTOTYPE) return true;
  if (errno == ECONNREFUSED || errno == ENOENT) return false;
  return Failed(path, "cannot tell whether the socket is in use", errno,
                "remove it, or choose another path");
}

}  // namespace

absl::Status MakeDirectory(const std::string& dir, mode_t mode) {
  std::error_code error;
  if (std::filesystem::is_directory(dir, error)) return absl::OkStatus();
  const mode_t before = umask(0777 & ~mode);
  std::filesystem::create_directories(dir, error);
  umask(before);
  if (error) {
    return Failed(dir, "cannot create the directory", error.value(),
                  "create it, or name another in the config");
  }
  return absl::OkStatus();
}

absl::Status PrepareStateDirectory(const std::string& dir) {
  KVKEEP_RETURN_IF_ERROR(MakeDirectory(dir, kPrivateDirectoryMode));
  // The directory may be a symbolic link, as systemd's state directories are.
  const UniqueFd fd(open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return Failed(dir, "cannot open the state directory", errno, "make it accessible");
  }
  const absl::Status own = CheckOwnDirectory(fd.get(), dir);
  if (!own.ok()) return absl::InvalidArgumentError(std::string(own.message()));
  return KeepOthersOut(fd.get(), dir);
}

absl::StatusOr<UniqueFd> LockDirectory(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/lock");
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return Failed(path, "cannot open the lock", errno, "make the state directory writable");
  }
  const auto started = std::chrono::steady_clock::now();
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return Failed(path, "cannot lock", errno, "use a file system that has locks");
    }
    const auto waited = std::chrono::steady_clock::now() - started;
    if (waited > (HolderIsDying(fd.get()) ? kDyingHolderWait : kLockWait)) {
      return absl::UnavailableError(absl::StrCat(
          dir, ": in use by another daemon; stop it, or give this one its own state directory"));
    }
    // Waits for a killed daemon to be gone, which nothing reports.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  const bool written = ftruncate(fd.get(), 0) == 0 && pwrite(fd.get(), pid.data(), pid.size(), 0) ==
                                                          static_cast<ssize_t>(pid.size());
  if (!written) return Failed(path, "cannot write", errno, "make the state directory writable");
  return fd;
}

absl::Status PrepareSocketPath(const std::string& path, mode_t directory_mode) {
  if (path.empty() || path[0] != '/' || path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path \"", path,
                                                   "\": must be absolute and at most ",
                                                   sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  KVKEEP_RETURN_IF_ERROR(
      MakeDirectory(std::filesystem::path(path).parent_path(), directory_mode));
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return Failed(path, "cannot look at it", errno, "make its directory accessible");
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is there and not a socket; remove it, or choose another path"));
  }
  KVKEEP_ASSIGN_OR_RETURN(const bool in_use, SomebodyListens(path));
  if (in_use) {
    return absl::UnavailableError(
        absl::StrCat(path, ": in use by another daemon; stop it, or give this one its own socket"));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Failed(path, "cannot remove a dead daemon's socket", errno, "remove it");
  }
  return absl::OkStatus();
}

absl::Status SetSocketMode(const std::string& path, mode_t mode) {
  if (chmod(path.c_str(), mode) != 0) {
    return Failed(path, "cannot set the mode", errno, "check its directory");
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
