// ManualClock: a clock that only a test moves. Not thread-safe.
#pragma once

#include "tiers/base/clock.h"

namespace kvkeep {

class ManualClock final : public Clock {
 public:
  MonotonicTime Now() const override { return now_; }
  uint64_t UnixMicros() const override {
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(now_);
    return static_cast<uint64_t>(unix_at_start_ + now.count());
  }
  void Advance(MonotonicTime by) { now_ += by; }
  // Sets the machine's wall clock; monotonic time is not affected.
  void StepUnix(std::chrono::microseconds by) { unix_at_start_ += by.count(); }

 private:
  int64_t unix_at_start_ = 1'700'000'000'000'000;
  MonotonicTime now_{0};
};

}  // namespace kvkeep
