// SharedClock: a ManualClock that threads may read while a test moves it.
#pragma once

#include <atomic>

#include "tiers/base/clock.h"

namespace kvkeep {

class SharedClock final : public Clock {
 public:
  MonotonicTime Now() const override { return MonotonicTime(now_.load()); }
  uint64_t UnixMicros() const override { return 0; }
  void Advance(MonotonicTime by) { now_ += by.count(); }

 private:
  std::atomic<int64_t> now_{1};
};

}  // namespace kvkeep
