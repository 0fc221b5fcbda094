// GpuMemory: a range of a worker's GPU memory that is given to the daemon.
//
// A handle shows the daemon a whole allocation, in which the range lies. So only allocations of
// 2 MiB and more are exported; the driver may pack smaller ones of several owners into one block.
// A value without CUDA's types.
#pragma once

#include <absl/status/status.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

struct GpuMemory {
  enum class Kind {
    kIpcHandle,   // cuIpcGetMemHandle: memory of cuMemAlloc, cudaMalloc
    kDescriptor,  // cuMemExportToShareableHandle: memory of cuMemCreate, e.g. expandable segments
  };
  static constexpr uint64_t kLeastAllocationBytes = 2 * kMiB;

  Kind kind = Kind::kIpcHandle;
  std::array<uint8_t, 16> gpu_uuid{};  // from cuDeviceGetUuid
  std::array<uint8_t, 64> handle{};    // kIpcHandle
  UniqueFd descriptor;                 // kDescriptor
  uint64_t allocation_bytes = 0;
  uint64_t offset = 0;  // of the range in the allocation
  uint64_t bytes = 0;   // of the range
  // The source of a put may be written again once its call has ended and its deadline is over,
  // whether or not it was answered. Puts are refused (FAILED_PRECONDITION) if the daemon could then
  // store the new bytes: before protocol 8, or with another clock.
  bool reused = false;

  // INVALID_ARGUMENT names the field.
  absl::Status Validate() const;
};

}  // namespace kvkeep::client
