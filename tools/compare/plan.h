// What a comparison is going to do, and how long that may take. Pure functions, plain values.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <vector>

namespace kvkeep::compare {

struct Call {
  uint64_t size = 0;   // of a chunk
  uint64_t batch = 1;  // chunks
};

struct NvmePlan {
  std::vector<uint64_t> sizes;  // of chunks; empty: NVMe is left out
  uint64_t round_bytes = 0;     // of a round of writes
  double seconds = 0;           // of a round of reads, and of fio's
  int rounds = 0;

  // Twice a round: so much is taken while nothing of it is written yet.
  uint64_t g2_bytes() const { return 2 * round_bytes; }
  // That is read: taken in turn, nothing of it is in G2 any more when it comes again.
  uint64_t read_bytes() const { return 3 * g2_bytes(); }
  // What is read and what is put after it, of which G2 is full when reading begins; then the rounds
  // of first fills, with room to spare.
  uint64_t put_first_bytes() const { return read_bytes() + g2_bytes(); }
  uint64_t g3_bytes() const { return put_first_bytes() + (rounds + 2) * round_bytes; }
  uint64_t disk_bytes() const;    // with fio's files
  uint64_t memory_bytes() const;  // with what is shared by clients, in all
};

struct Plan {
  std::vector<Call> calls;  // each with contestants that were started for it
  uint64_t capacity_bytes = 0, region_bytes = 0;
  double seconds = 0;  // of a slice
  int rounds = 0;
  NvmePlan nvme;
};

// What was asked for on the command line.
struct Asked {
  std::vector<uint64_t> sizes;
  std::vector<uint64_t> batches;  // empty: the ordinary ones, 1, and 8 of 4 MiB too
  uint64_t capacity_bytes = 0, region_bytes = 0;
  double seconds = 0;
  int rounds = 0;
  uint64_t nvme_round_bytes = 0;
  bool nvme = true;
  bool quick = false;  // all of these figures are given, and small
};

// Each size in each batch that fits a region and half of the capacity.
Plan PlanOf(const Asked& asked);

// The rounds as large as was asked for, or as the drive and the memory have room.
// ResourceExhausted: not even for small ones.
absl::StatusOr<NvmePlan> FitNvme(NvmePlan wanted, uint64_t disk_bytes, uint64_t memory_bytes);

// How long it takes, rather more than less, where nothing else runs, memory is touched for the
// first time at 2 GB/s and the drive moves 1 GB/s: all contestants with one call, NVMe, the whole
// plan.
double MostCallSeconds(const Plan& plan, uint64_t contestants);
double MostNvmeSeconds(const NvmePlan& plan);
double MostSeconds(const Plan& plan, uint64_t contestants);

// Keeps --quick within its time: of a plan whose steps turn out to be slower than was reckoned, the
// last ones are left out.
class QuickBudget {
 public:
  static constexpr double kSeconds = 120;

  // `most_seconds`: as reckoned for the next step; `elapsed`: since the begin. False: leave it out.
  bool HasRoomFor(double most_seconds, double elapsed);

 private:
  double reckoned_ = 0;  // for the steps that were begun
};

}  // namespace kvkeep::compare
