#include "client/gpu/gpu_memory.h"

#include <absl/strings/str_cat.h>

namespace kvkeep::client {

absl::Status GpuMemory::Validate() const {
  if (allocation_bytes < kLeastAllocationBytes) {
    return absl::InvalidArgumentError(absl::StrCat("allocation_bytes is ", allocation_bytes,
                                                   ", needed are ", kLeastAllocationBytes,
                                                   ": smaller ones may share a block with others"));
  }
  if (bytes == 0 || offset > allocation_bytes || bytes > allocation_bytes - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes: ", bytes, " at ", offset, "; the allocation has ", allocation_bytes));
  }
  if (kind == Kind::kDescriptor && !descriptor.valid()) {
    return absl::InvalidArgumentError("descriptor: none");
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::client
