// FailureWatch: judges from the states of a device that is here when to open it anew. Pure.
//
// A device that cannot be read (offline) is opened anew when it has failed for a while. A device
// that takes no writes (read-only) can still be read. So its directory is probed first, and the
// device is opened anew once the directory takes writes. Opening costs a read of the index, so the
// wait doubles with each time in a row, until the device has been well for long. A degraded device
// is neither well nor failed: the store tries it again.
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

  // `state`: Store::StateOfAnswering; none: the device is away, or hangs.
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

  uint32_t opened_ = 0;  // times in a row
  std::optional<MonotonicTime> well_since_;
  std::optional<MonotonicTime> fails_;  // it has failed, and advice is due then
};

}  // namespace kvkeep
