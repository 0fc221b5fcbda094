// The doctor's word on G4: whether the daemon can read the files that it needs for it, whether the
// bucket or directory serves, and whether the rate of writes fits the network. The bucket is asked
// once, for an object that is not there. Nothing is changed; `kvkeep g4 check` tries more.
#pragma once

#include <vector>

#include "config/config.h"
#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// None where the config has no G4. Blocks for about 5 seconds at most.
//
// Files are looked at as the user of kvkeepd.service where this process is root's, else as its own
// user, who should be the daemon's. For that all threads of the process have that user meanwhile.
std::vector<Finding> ExamineG4(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
