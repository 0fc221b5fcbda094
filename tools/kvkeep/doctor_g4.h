// The doctor's findings on G4: whether the daemon can read the files that G4 needs, whether the
// bucket or directory serves, and whether the rate of writes fits the network. A bucket gets one
// request, for an object that does not exist; `kvkeep g4 check` tries more. In a directory the
// doctor makes files beside other users' files, and removes them (tiers/objects/directory_check.h).
#pragma once

#include <vector>

#include "config/config.h"
#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// Returns no finding if the config has no G4. Blocks for about 5 seconds at most.
//
// If this process is root's, it checks files as the user of kvkeepd.service; all its threads have
// that user meanwhile. Otherwise it checks as its own user, which should be the daemon's.
std::vector<Finding> ExamineG4(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
