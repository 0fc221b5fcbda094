// The doctor's word on GPUs: how many there are, by which path their workers copy, and what stands
// between the daemon and them. Looks at /dev and at kvkeepd.service (doctor_service.h).
#pragma once

#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// Tells what the daemon will do with GPUs. The daemon's status says whether it can: it needs more
// than the library.
Finding ExamineGpus(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
