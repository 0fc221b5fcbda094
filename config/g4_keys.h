// The part of the table of keys (schema.h) that is about G4 and the fleet that shares it.
#pragma once

#include <vector>

#include "config/schema.h"

namespace kvkeep::config_internal {

std::vector<ConfigKey> G4Keys();
std::vector<ConfigKey> FleetKeys();

}  // namespace kvkeep::config_internal
