#include "server/observe/names.h"

namespace kvkeep {

std::string ShownTenant(const std::string& name) { return name.empty() ? "default" : name; }

const char* DeviceStateName(DeviceState state) {
  switch (state) {
    case DeviceState::kOk:
      return "ok";
    case DeviceState::kDegraded:
      return "degraded";
    case DeviceState::kReadOnly:
      return "read-only";
    case DeviceState::kOffline:
      return "offline";
    case DeviceState::kJoining:
      return "joining";
  }
  return "unknown";
}

}  // namespace kvkeep
