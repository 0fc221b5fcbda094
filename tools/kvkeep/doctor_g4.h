// The doctor's word on G4: whether the daemon can read the files that it needs for it, whether the
// bucket or directory serves, and whether the rate of writes fits the network. A bucket is asked
// once, for an object that is not there; `kvkeep g4 check` tries more. In a directory files are
// made beside those of other users, and removed again (tiers/objects/directory_check.h).
#pragma once

#include <vector>

#include "config/config.h"
#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// None where the config has no G4. Blocks for about 5 seconds at most.
//
// If this process is root's, it looks at files as the user of kvkeepd.service; all its threads have
// that user meanwhile. Otherwise it looks as its own user, who should be the daemon's.
std::vector<Finding> ExamineG4(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
