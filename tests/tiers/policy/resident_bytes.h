// This process's resident memory, as the kernel counts it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep {

inline uint64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::strtoull(line.c_str() + 6, nullptr, 10) * kKiB;
  }
  return 0;
}

}  // namespace kvkeep
