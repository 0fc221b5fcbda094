// ImportedMemory: memory of another process, opened in this one's context.
//
// Each known refusal has its own message, with the cause. All calls but CheckImportable need the
// device's context, current on the calling thread. They take as long as the driver takes.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <cuda.h>

#include <cstdint>

#include "gpu/driver.h"
#include "server/gpu/gpu_device.h"

namespace kvkeep {

struct ImportedMemory {
  GpuMemory::Kind kind = GpuMemory::Kind::kIpcHandle;
  CUdeviceptr base = 0;
  uint64_t bytes = 0;  // of the whole allocation
};

// Checks what can be checked of a handle without a context; a descriptor passes.
// FailedPrecondition: the memory is this process's own, or of a process with the same number.
// Unimplemented: the device cannot import it.
absl::Status CheckImportable(const GpuDriver& driver, CUdevice device, const GpuMemory& memory);
// Errors as CheckImportable's. InvalidArgument: no such memory, it is of another device, or it is
// smaller than the worker said.
// REQUIRES: memory.Validate() is ok.
absl::StatusOr<ImportedMemory> ImportMemory(const GpuDriver& driver, CUdevice device,
                                            const GpuMemory& memory);

// REQUIRES: no copy uses it.
absl::Status CloseMemory(const GpuDriver& driver, const ImportedMemory& memory);

// Returns whether the device is a part of a GPU (MIG), where handles do not work between processes.
absl::StatusOr<bool> IsMigInstance(const GpuDriver& driver, CUdevice device);

}  // namespace kvkeep
