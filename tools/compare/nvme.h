// NVMe beside fio: how fast kvkeep reads chunks that are on NVMe only (found, read, verified,
// promoted, delivered) and how fast it takes new ones when each must be written back, against fio
// on a file of the same directory (tools/bench/fio.h).
//
// Rounds of kvkeep and fio take turns. One thread; forks, so this process must not have touched
// gRPC.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "tools/bench/series.h"

namespace kvkeep::compare {

struct NvmeOptions {
  std::string daemon_binary;
  std::string directory;    // exists; on the drive to be measured
  uint64_t g2_bytes = 0;    // small: what is got must not be there
  uint64_t data_bytes = 0;  // read from; much more than g2_bytes
  double seconds = 0;       // of a slice
  int rounds = 0;
};

struct NvmeResult {
  uint64_t size = 0;  // of a chunk
  // Writes: until all of a burst is on NVMe. First fills go to space that was never written to;
  // overwrites take the place of what is evicted for them.
  bench::Series reads, first_fills, overwrites;
  std::vector<double> fio_reads, fio_first_fills, fio_overwrites;  // GB/s, in the same file state
};

// Unavailable: there is no fio.
absl::StatusOr<std::vector<NvmeResult>> CompareWithFio(const NvmeOptions& options,
                                                       const std::vector<uint64_t>& sizes);

}  // namespace kvkeep::compare
