// Runs of a plan, into a caller's array. Of kvkeep_kv.h.
#pragma once

#include <absl/strings/str_cat.h>

#include <span>

#include "client/c/kvkeep_gpu.h"
#include "client/gpu/gpu_run.h"

namespace kvkeep::client {

// OutOfRange: there is not so much room, and nothing was written. `run_count` is told anyway.
inline absl::Status WriteRuns(std::span<const GpuRun> runs, kvkeep_gpu_run* to, uint64_t room,
                              uint64_t* run_count) {
  *run_count = runs.size();
  if (runs.size() > room) {
    return absl::OutOfRangeError(
        absl::StrCat("room: ", room, ", there are ", runs.size(), " runs"));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    to[i] = {.region = runs[i].region.value(), .offset = runs[i].offset, .bytes = runs[i].bytes};
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::client
