// The kernel's statistics of this process, under the names that Prometheus' own clients use.
#pragma once

#include <cstdint>

namespace kvkeep {

struct ProcessStats {
  double cpu_seconds = 0;  // user and system
  uint64_t resident_bytes = 0, virtual_bytes = 0;
  uint64_t open_fds = 0, max_fds = 0;
  uint64_t threads = 0;
  double start_unix_seconds = 0;
};

// Reads /proc. A number that cannot be read is 0: the numbers are for people, nothing depends on
// them.
ProcessStats ReadProcessStats();

}  // namespace kvkeep
