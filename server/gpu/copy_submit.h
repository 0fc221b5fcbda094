// SubmitCopies: gives a plan to a stream, by the fewest calls that this driver has for it.
#pragma once

#include <absl/status/status.h>
#include <cuda.h>

#include <cstdint>

#include "gpu/driver.h"
#include "server/gpu/copy_plan.h"
#include "server/gpu/gpu_device.h"

namespace kvkeep {

struct Submitted {
  absl::Status status;  // of the call that was refused, else OK
  uint64_t pieces = 0;  // that the stream has: with an error, some may be under way all the same
  uint64_t calls = 0;
};

// REQUIRES: the stream's context is current.
Submitted SubmitCopies(const GpuDriver& driver, const CopyPlan& plan, CopyDirection direction,
                       const GpuArena& arena, CUstream stream);

}  // namespace kvkeep
