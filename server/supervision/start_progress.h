// StartProgress: what a daemon's start has done so far. Written by whoever starts, read by
// StartReporter. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvkeep {

struct StartProgress {
  std::atomic<const char*> step{"starting"};  // a literal
  std::atomic<uint64_t> memory_bytes{0};      // taken for G2
  std::atomic<uint64_t> recovered_images{0};  // of G2, looked at
  std::atomic<uint64_t> recovered_records{0};  // of the devices
  std::atomic<uint64_t> recovery_ns{0};  // how long it took; 0: not over
};

}  // namespace kvkeep
