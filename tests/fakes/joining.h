// Returns whether a device of a daemon is still being opened, or its index read. Until it has
// joined its chunks are misses.
#pragma once

#include <algorithm>

#include "kvkeep/v1/kvkeep.pb.h"

namespace kvkeep {

inline bool AnyDeviceJoins(const v1::StatusResponse& status) {
  return std::any_of(status.devices().begin(), status.devices().end(),
                     [](const v1::DeviceStatus& device) { return device.state() == "joining"; });
}

}  // namespace kvkeep
