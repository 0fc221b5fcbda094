// Drive: makes and measures the calls of some operations, one call of each operation at a time.
//
// Time is measured in slices. Between slices the clock stands, nothing is in flight, and the result
// of each operation's last call is verified. Latency and rates are of the slices only. A call
// belongs to the slice that it began in, and a slice ends when its last call has ended. A call is
// prepared before it begins. With one operation, the preparation does not count as the slice's
// time; with several it does, as the others go on meanwhile.
#pragma once

#include <memory>
#include <span>

#include "tools/bench/client/measured.h"
#include "tools/bench/client/operation.h"

namespace kvkeep::bench {

struct DriveOptions {
  double seconds = 1;    // of measured time
  uint64_t max_ops = 0;  // 0: no limit; else ends at this or at `seconds`, whichever is first
  double slice_seconds = 0.1;
  bool verify = true;
  uint64_t verify_bytes_per_slice = 32ull << 20;
};

// Ends early if all calls of a slice failed.
Measured Drive(std::span<const std::unique_ptr<Operation>> operations, const DriveOptions& options);

}  // namespace kvkeep::bench
