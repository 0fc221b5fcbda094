// Usage of another process, from /proc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvkeep::e2e {

struct ProcessUsage {
  uint64_t private_bytes = 0;  // RssAnon
  uint64_t page_faults = 0;    // minor ones: the page was found without I/O
  double cpu_seconds = 0;
  size_t threads = 0;
};
ProcessUsage UsageOf(uint64_t pid);

}  // namespace kvkeep::e2e
