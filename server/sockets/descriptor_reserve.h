// The last descriptors of the process are not for connections: files, devices, the index and those
// who are connected already need some.
#pragma once

#include <sys/resource.h>

#include <algorithm>

namespace kvkeep {

// `fd`: just opened. The kernel gives the lowest number that is free, so one that lies in the
// reserve says that all before it are in use.
inline bool InDescriptorReserve(int fd) {
  constexpr rlim_t kMost = 512;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return false;
  const rlim_t reserve = std::min(files.rlim_cur / 4, kMost);
  return static_cast<rlim_t>(fd) >= files.rlim_cur - reserve;
}

}  // namespace kvkeep
