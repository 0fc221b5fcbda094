// CudaStatus: what an error of the CUDA driver means to kvkeep. The one place that maps them.
//
//   InvalidArgument     a pointer, handle or size that the driver does not take
//   NotFound            no device, or memory that is not registered
//   AlreadyExists       memory that is registered already
//   ResourceExhausted   device memory, or the driver's own tables
//   PermissionDenied    not permitted
//   Unimplemented       this device, driver or mode (MIG) cannot do it
//   FailedPrecondition  no usable context here (in cuIpcOpenMemHandle: opened in the process that
//                       exported it, or one with the same process id), a stub, mismatched versions
//   Unavailable         the device or its context is broken, and so is all that is done there later
//   Internal            an error not listed
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <cuda.h>

#include <optional>

namespace kvkeep {

// "<call>: <name> (<number>): <text>". `name` and `text` are the driver's own for `error`.
// REQUIRES: error is not CUDA_SUCCESS.
absl::Status CudaStatus(CUresult error, absl::string_view call, absl::string_view name,
                        absl::string_view text);

// The driver's error that a Status was made of; empty for others.
std::optional<CUresult> CudaErrorOf(const absl::Status& status);

// Whether nothing of the context that gave this error can be used any more ("sticky").
bool BreaksContext(CUresult error);
bool BreaksContext(const absl::Status& status);

}  // namespace kvkeep
