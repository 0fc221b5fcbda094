// The doctor's word on sockets: whether a container that is given the directory of one tenant's
// sockets gets another tenant's or the admin's with it. Looks at the config and at the mode of the
// admin socket's directory.
#pragma once

#include <vector>

#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// One finding of the admin socket; one of the tenants' where there are several.
std::vector<Finding> ExamineSockets(const Config& config);

}  // namespace kvkeep::tools
