// Connections do not get the last descriptors of the process: files, devices, the index and
// existing connections need some.
#pragma once

#include <sys/resource.h>

#include <algorithm>

namespace kvkeep {

// Returns whether `fd`, just opened, lies in the reserve. The kernel gives the lowest free number,
// so all numbers below it are in use then.
inline bool InDescriptorReserve(int fd) {
  constexpr rlim_t kMost = 512;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return false;
  const rlim_t reserve = std::min(files.rlim_cur / 4, kMost);
  return static_cast<rlim_t>(fd) >= files.rlim_cur - reserve;
}

}  // namespace kvkeep
