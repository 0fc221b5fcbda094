// The doctor's findings on sockets: whether a container that gets the directory of one tenant's
// sockets also gets another tenant's or the admin's. Reads the config and the mode of the admin
// socket's directory.
#pragma once

#include <vector>

#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// Returns a finding on the admin socket, and one on the tenants' sockets if there are several.
std::vector<Finding> ExamineSockets(const Config& config);

}  // namespace kvkeep::tools
