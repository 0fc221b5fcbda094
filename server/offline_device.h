// A device that the config names and that could not be opened: the daemon runs without it and says
// so.
#pragma once

#include <cstdint>
#include <string>

#include "tiers/store/snapshot.h"

namespace kvkeep {

struct OfflineDevice {
  std::string path;
  std::string message;
  uint64_t capacity_bytes = 0;
};

// Adds the devices that the store does not know to what it tells of the others.
inline void AddOffline(const std::vector<OfflineDevice>& devices, StoreSnapshot* snapshot) {
  for (const OfflineDevice& device : devices) {
    snapshot->devices.push_back({.path = device.path,
                                 .state = DeviceState::kOffline,
                                 .message = device.message,
                                 .capacity_bytes = device.capacity_bytes,
                                 .built_bytes = device.capacity_bytes});
  }
}

}  // namespace kvkeep
