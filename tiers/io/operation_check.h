// CheckOperation: checks that every Device makes before it moves a byte.
#pragma once

#include <absl/status/status.h>

#include <cstdint>

#include "tiers/io/device.h"

namespace kvkeep {

// Internal when offset, size or address is not a multiple of kBlockBytes, when nothing is to be
// moved, or when it does not lie inside the device: all are our bugs. FailedPrecondition for a
// write to a read-only device. CHECKs that there is a callback to tell.
absl::Status CheckOperation(const IoOperation& operation, uint64_t size_bytes, bool read_only);

// "read of 4096 bytes at 8192", for messages.
std::string DescribeOperation(const IoOperation& operation);

}  // namespace kvkeep
