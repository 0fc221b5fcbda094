// How the daemon names things to people: in metrics, statuses and messages alike. Free functions.
#pragma once

#include <string>

#include "tiers/store/snapshot.h"

namespace kvkeep {

// "default" for the tenant that has no name.
std::string ShownTenant(const std::string& name);
const char* DeviceStateName(DeviceState state);  // "ok", "degraded", "read-only", "offline"

}  // namespace kvkeep
