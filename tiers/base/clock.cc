#include "tiers/base/clock.h"

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

}  // namespace

Clock* RealClock() {
  static SystemClock* const clock = new SystemClock;  // never destroyed: threads may outlive main
  return clock;
}

}  // namespace kvkeep
