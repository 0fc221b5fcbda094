// The memfd backing: anonymous memory that no holder of a descriptor can write, shrink or punch.
//
// Each segment is mapped read-write once, then sealed (SHRINK|GROW|FUTURE_WRITE|SEAL): that mapping
// stays writable, but nobody else can ever write it, not even the daemon's next start. So G2 starts
// cold.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "tiers/base/random.h"
#include "tiers/host/segment_files.h"

namespace kvkeep {

// ResourceExhausted when the machine has not got the memory.
absl::StatusOr<std::unique_ptr<SegmentFiles>> CreateMemfdFiles(const ArenaGeometry& geometry,
                                                               RandomSource* random);

}  // namespace kvkeep
