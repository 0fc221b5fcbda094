// The doctor's word on GPUs: how many there are, by which path their workers copy, and what stands
// between the daemon and them. Looks at /dev and at kvkeepd.service (doctor_service.h).
#pragma once

#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {

// What the daemon will do with GPUs. Whether it can, its status says: the library is one thing of
// several that it needs.
Finding ExamineGpus(const Config& config, const Machine& machine);

}  // namespace kvkeep::tools
