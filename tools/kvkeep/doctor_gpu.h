// The doctor's finding on GPUs: their number, the path by which workers copy, and obstacles between
// the daemon and the GPUs. Reads /dev and kvkeepd.service (doctor_service.h).
#pragma once

#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// Says what the daemon will do with GPUs. The daemon's status says whether it can, which takes more
// than the library.
Finding ExamineGpus(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
