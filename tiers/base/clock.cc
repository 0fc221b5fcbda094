#include "tiers/base/clock.h"

#include <time.h>

namespace kvkeep {
namespace {

class SystemClock final : public Clock {
 public:
  MonotonicTime Now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
  uint64_t UnixMicros() const override {
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
  }
};

class ThreadClock final : public Clock {
 public:
  MonotonicTime Now() const override {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
  uint64_t UnixMicros() const override { return RealClock()->UnixMicros(); }
};

}  // namespace

Clock* ThreadCpuClock() {
  static ThreadClock* const clock = new ThreadClock;  // never destroyed, as RealClock
  return clock;
}

Clock* RealClock() {
  static SystemClock* const clock = new SystemClock;  // never destroyed: threads may outlive main
  return clock;
}

}  // namespace kvkeep
