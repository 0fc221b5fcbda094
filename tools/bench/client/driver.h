// Drive: makes the calls of some operations, as many at a time as there are operations, and
// measures them.
//
// Time is measured in slices; between them the clock stands, nothing is in flight, and what the
// last call of each operation left behind is compared with what it must be. Latency and rates are
// of the slices only; a call belongs to the slice that it began in, and a slice ends when its last
// call has. A call is prepared before it begins. With one operation, the preparation does not count
// as the slice's time; with several, the others go on meanwhile, and it does.
#pragma once

#include <memory>
#include <span>

#include "tools/bench/client/measured.h"
#include "tools/bench/client/operation.h"

namespace kvkeep::bench {

struct DriveOptions {
  double seconds = 1;    // of measured time
  uint64_t max_ops = 0;  // 0: no limit; else the end comes with whatever is first
  double slice_seconds = 0.1;
  bool verify = true;
  uint64_t verify_bytes_per_slice = 32ull << 20;
};

// Ends early when a whole slice brought nothing but failures.
Measured Drive(std::span<const std::unique_ptr<Operation>> operations, const DriveOptions& options);

}  // namespace kvkeep::bench
