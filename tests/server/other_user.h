// Connections of other users, made by one process: the kernel keeps credentials by thread and
// remembers, for SO_PEERCRED, those of the thread that called connect(2).
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "tiers/base/unique_fd.h"

namespace kvkeep {

inline constexpr uid_t kSomeUser = 64123;
inline constexpr gid_t kSomeGroup = 64124;

// Returns whether this process is root, which can connect as another user; prints a warning if not.
inline bool CanBeSomebodyElse() {
  if (geteuid() == 0) return true;
  WARN("skipped: needs root, to connect as another user");
  return false;
}

// Returns an invalid descriptor, with errno set, if connect(2) fails.
inline UniqueFd ConnectTo(const std::string& path, int type = SOCK_STREAM) {
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const int error = errno;
  fd.Reset();
  errno = error;
  return fd;
}

inline UniqueFd ConnectAs(uid_t uid, gid_t gid, const std::string& path, int type = SOCK_STREAM) {
  UniqueFd fd;
  int error = 0;
  std::thread([&] {
    // Makes the system calls directly, as libc's functions change all threads.
    if (syscall(SYS_setresgid, gid, gid, gid) == 0 && syscall(SYS_setresuid, uid, uid, uid) == 0) {
      fd = ConnectTo(path, type);
    }
    error = errno;
  }).join();
  errno = error;
  return fd;
}

}  // namespace kvkeep
