// MeasureGpu: --path cuda-ipc and --path pinned: chunks to the GPU and from it, by the size of
// runs, each round beside plain copies of as many bytes in one piece, between host memory that the
// driver knows and the GPU. With --tier g3: chunks that are on NVMe only to the GPU, each round
// beside fio on the same drive.
#pragma once

#include <absl/status/status.h>

#include "tools/bench/cases.h"
#include "tools/bench/load_generator.h"

namespace kvkeep::bench {

// By the report's options. Fills its path, cases, baselines and lines: a line a case, with what is
// promised of it. `daemon`: ours, or null. REQUIRES: it is ours where chunks come from G3.
absl::Status MeasureGpu(const Progress& progress, const DaemonProcess* daemon,
                        LoadGenerator& load, Report* report);

}  // namespace kvkeep::bench
