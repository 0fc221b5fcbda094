// MeasureGpu: --path cuda-ipc and --path pinned: chunks to the GPU and from it, by the size of
// runs, each round beside plain copies of as many bytes in one piece, between host memory that the
// driver knows and the GPU.
#pragma once

#include <absl/status/status.h>

#include "tools/bench/cases.h"
#include "tools/bench/load_generator.h"

namespace kvkeep::bench {

// Fills the report's path, cases, baselines and lines: a line a case, with what is promised of it.
absl::Status MeasureGpu(const Options& options, const Progress& progress, LoadGenerator* generator,
                        Report* report);

}  // namespace kvkeep::bench
