// Clock: the seam to time. The store and its policies see time only through it, so that a
// simulator can run years of it. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

namespace kvkeep {

// Monotonic time since some unspecified start; never goes back, not even when the wall clock does.
using MonotonicTime = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
  // Microseconds since 1970. Only for times shown to people, an image's creation time, and the age
  // of images whose time another machine tells.
  virtual uint64_t UnixMicros() const = 0;
};

// The machine's clocks. Lives for ever.
Clock* RealClock();
// Now() is the CPU time that the calling thread has used, so a difference is work done, not time
// passed. UnixMicros() as RealClock's. Lives for ever.
Clock* ThreadCpuClock();

}  // namespace kvkeep
