// Common code of both planners of kvkeep_kv.h: reads the tensors that a caller lists, and writes
// the runs of a plan to a caller's array.
#pragma once

#include <absl/strings/str_cat.h>

#include <span>

#include "client/c/border.h"
#include "client/c/kvkeep_gpu.h"
#include "client/gpu/gpu_run.h"

namespace kvkeep::client {

inline absl::Status CheckTensors(const void* tensors, uint32_t count) {
  constexpr uint32_t kMaxTensors = 65536;  // one a layer's K and V: more is no model
  if (tensors == nullptr) return IsNull("tensors");
  if (count > 0 && count <= kMaxTensors) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor_count: ", count, ", 1 to ", kMaxTensors, " are possible"));
}

// OutOfRange: there is not enough room, and nothing was written. Sets `run_count` in any case.
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
