#include "server/gpu/gpu_device.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"

namespace kvkeep {

absl::Status GpuArena::Validate() const {
  if (segments.empty() || segment_bytes == 0) {
    return absl::InvalidArgumentError("the arena has no segments");
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    const bool last = i + 1 == segments.size();
    if (segments[i].empty() || segments[i].size() > segment_bytes ||
        (!last && segments[i].size() != segment_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("segments[", i, "] has ", segments[i].size(),
                                                     " bytes, segment_bytes is ", segment_bytes));
    }
  }
  return absl::OkStatus();
}

uint64_t GpuArena::bytes() const {
  return (segments.size() - 1) * segment_bytes + segments.back().size();
}

std::byte* GpuArena::At(uint64_t offset) const {
  KVKEEP_CHECK(offset < bytes());
  return segments[offset / segment_bytes].data() + offset % segment_bytes;
}

absl::Status GpuMemory::Validate() const {
  if (kind == Kind::kDescriptor && !descriptor.valid()) {
    return absl::InvalidArgumentError("no descriptor came with the registration");
  }
  if (bytes == 0) return absl::InvalidArgumentError("bytes is 0");
  if (offset > allocation_bytes || bytes > allocation_bytes - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes, " bytes at ", offset, "; the allocation has ", allocation_bytes));
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
