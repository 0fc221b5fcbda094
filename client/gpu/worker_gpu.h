// WorkerGpu: the seam to the driver in a worker's own process: exports its memory for the daemon,
// and registers its mapping of the arena.
//
// The driver is opened at run time; without one, or in a build without CUDA's headers, Load says
// why. Thread-safe. No CUDA in this header; addresses and ordinals are the driver's.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/gpu/gpu_memory.h"
#include "client/gpu/pinned_arena.h"

namespace kvkeep::client {

class WorkerGpu {
 public:
  // `library`: a name that the loader looks up, or a path. NOT_FOUND: no driver, or no device.
  // UNIMPLEMENTED: built without it. FAILED_PRECONDITION: it cannot be used.
  static absl::StatusOr<std::shared_ptr<WorkerGpu>> Load(const std::string& library);

  virtual ~WorkerGpu() = default;

  // Exports [address, address + bytes), which lies in one allocation, for the daemon. REQUIRES: a
  // context is current on this thread, as for all uses of that memory. INVALID_ARGUMENT: no such
  // memory, or it cannot be exported. UNIMPLEMENTED: not on this device (MIG).
  virtual absl::StatusOr<GpuMemory> Export(uint64_t address, uint64_t bytes) = 0;

  // Registers memory that is mapped read-only, in the background, for all contexts of this process.
  // The memory must outlive the pin. UNIMPLEMENTED: the device cannot register such memory.
  // NOT_FOUND: no device has that number.
  virtual absl::StatusOr<std::unique_ptr<PinnedArena::Pin>> PinReadOnly(
      int device, std::vector<std::span<std::byte>> segments) = 0;
};

}  // namespace kvkeep::client
