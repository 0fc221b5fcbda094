// Times as messages carry them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace kvkeep {

// Returns `time` rounded up, so that a time above 0 is never 0; at most 71 minutes.
inline uint32_t WholeMicroseconds(std::chrono::nanoseconds time) {
  const int64_t us = time.count() / 1000 + (time.count() % 1000 > 0 ? 1 : 0);
  return static_cast<uint32_t>(std::clamp<int64_t>(us, 0, UINT32_MAX));
}

}  // namespace kvkeep
