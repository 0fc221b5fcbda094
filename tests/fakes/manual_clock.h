// ManualClock: time that moves only when told to. Not thread-safe.
#pragma once

#include "tiers/base/clock.h"

namespace kvkeep {

class ManualClock final : public Clock {
 public:
  MonotonicTime Now() const override { return now_; }
  uint64_t UnixMicros() const override {
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(now_);
    return 1'700'000'000'000'000 + now.count();
  }
  void Advance(MonotonicTime by) { now_ += by; }

 private:
  MonotonicTime now_{0};
};

}  // namespace kvkeep
