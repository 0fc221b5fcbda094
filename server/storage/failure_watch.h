// FailureWatch: when a device that is here is to be opened anew, from looks at its state. Pure.
//
// One that cannot be read is opened anew when it has failed for a while. One that takes no writes
// can be read as it is: its directory is probed first, and it is opened anew when that takes some.
// Opening anew costs a read of the index, so each time in a row waits twice as long, until the
// device was well for long. Degraded is neither well nor failed: the store tries it again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/store/snapshot.h"

namespace kvkeep {

class FailureWatch {
 public:
  static constexpr std::chrono::seconds kPatience{5}, kLongestPatience{600}, kWell{600};
  static constexpr std::chrono::seconds kProbeAgain{5};

  enum class Advice : uint8_t { kNothing, kProbe, kOpenAnew };

  // Nothing: it is away, or hangs.
  Advice Look(std::optional<DeviceState> state, MonotonicTime now) {
    if (!state.has_value()) return Advice::kNothing;
    if (*state == DeviceState::kOk) {
      fails_.reset();
      if (!well_since_.has_value()) well_since_ = now;
      if (now - *well_since_ >= kWell) opened_ = 0;
      return Advice::kNothing;
    }
    well_since_.reset();
    if (*state != DeviceState::kReadOnly && *state != DeviceState::kOffline) {
      return Advice::kNothing;
    }
    if (!fails_.has_value()) fails_ = now + Patience();
    if (now < *fails_) return Advice::kNothing;
    fails_ = now + kProbeAgain;
    return *state == DeviceState::kOffline ? Advice::kOpenAnew : Advice::kProbe;
  }
  void OpensAnew() {
    ++opened_;
    fails_.reset();
    well_since_.reset();
  }

 private:
  std::chrono::seconds Patience() const {
    return std::min(kPatience * (1 << std::min(opened_, 7u)), kLongestPatience);
  }

  uint32_t opened_ = 0;  // one soon after the other
  std::optional<MonotonicTime> well_since_;
  std::optional<MonotonicTime> fails_;  // since it was well; advice is due then
};

}  // namespace kvkeep
