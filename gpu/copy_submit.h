// SubmitCopies: gives copies between a GPU and this process's memory to a stream, by the fewest
// calls that this driver has for it: one batch, or one by one.
#pragma once

#include <absl/status/status.h>
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/driver.h"

namespace kvkeep {

// Drivers crash or hang with tens of thousands in one batch.
inline constexpr size_t kMaxBatchCopies = 4096;

struct DeviceCopy {
  uint64_t device = 0;  // address, as the driver has it
  std::byte* host = nullptr;
  uint64_t bytes = 0;
};

struct Submitted {
  absl::Status status;  // of the call that was refused, else OK
  uint64_t pieces = 0;  // that the stream has: with an error, some may be under way all the same
  uint64_t calls = 0;
};

enum class DeviceCopyWay { kToGpu, kToHost };

// REQUIRES: the stream's context is current; at most kMaxBatchCopies copies.
Submitted SubmitCopies(const GpuDriver& driver, std::span<const DeviceCopy> copies,
                       DeviceCopyWay way, CUstream stream);

}  // namespace kvkeep
