// The names of things in metrics, statuses and messages. Free functions.
#pragma once

#include <string>

#include "tiers/store/snapshot.h"

namespace kvkeep {

// "default" for the tenant that has no name.
std::string ShownTenant(const std::string& name);
const char* DeviceStateName(DeviceState state);  // "ok", "degraded", "read-only", "offline"

}  // namespace kvkeep
