// NVMe beside fio: how fast kvkeep reads chunks that are on NVMe only (cold_reads.h) and how fast
// it takes new ones when each must be written back, against fio on a file of the same directory and
// in the same state (tools/bench/fio.h), with blocks of 1 and of 4 MiB.
//
// Rounds: kvkeep and both fios run once each, and the order moves on by one. One thread;
// forks, so this process must not have touched gRPC.
#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <string>
#include <vector>

#include "tiers/base/units.h"
#include "tools/bench/series.h"
#include "tools/compare/plan.h"

namespace kvkeep::compare {

inline constexpr std::array<uint64_t, 2> kFioBlocks = {kMiB, 4 * kMiB};

// kvkeep's rounds and fio's.
struct BesideFio {
  bench::Series kvkeep;
  std::array<std::vector<double>, kFioBlocks.size()> fio;  // GB/s, as kFioBlocks

  // Of these blocks fio was faster, by the medians: what kvkeep is compared with.
  size_t better() const;
  const std::vector<double>& baseline() const { return fio[better()]; }
};

struct NvmeResult {
  uint64_t size = 0;  // of a chunk
  // Writes: until all of a burst is on NVMe. First fills go to space that was never written to;
  // overwrites take the place of what is evicted for them.
  BesideFio reads, first_fills, overwrites;
  uint64_t promoted_bytes = 0;  // by the daemon, from NVMe, in the rounds of reads

  // Of what was read, the part that the daemon read from NVMe for it. Less than nearly all: some
  // came from memory, or two asked for the same, and `reads` is no figure of NVMe.
  double from_nvme() const;
  bool refused() const { return from_nvme() < kLeastFromNvme; }

  static constexpr double kLeastFromNvme = 0.98;
};

struct NvmeOptions {
  std::string daemon_binary;
  std::string directory;  // exists; on the drive to be measured
  NvmePlan plan;
};

// Unavailable: there is no fio.
absl::StatusOr<std::vector<NvmeResult>> CompareWithFio(const NvmeOptions& options);

}  // namespace kvkeep::compare
