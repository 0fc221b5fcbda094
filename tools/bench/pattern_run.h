// RunPattern: plays a pattern of load against a daemon, once for each rate: clears it, stores what
// is there before, reads some prompts alone, then lets all workers play. What the drive does
// without the daemon, fio measures before and after. Forks; this process must not have touched
// gRPC.
#pragma once

#include <absl/status/statusor.h>

#include "tools/bench/cases.h"
#include "tools/bench/options.h"
#include "tools/bench/pattern_report.h"
#include "tools/bench/pattern_request.h"

namespace kvkeep::bench {

// A daemon that is started has a G2 of a quarter of the working set and a G3 that holds it, unless
// `options` say otherwise (g2_bytes, g3_bytes above 0).
absl::StatusOr<PatternReport> RunPattern(const Options& options, const PatternRequest& request,
                                         const Progress& progress);

}  // namespace kvkeep::bench
