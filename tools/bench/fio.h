// Fio: how fast the drive of a directory is read and written without kvkeep, in the same minutes:
// fio with io_uring, O_DIRECT, registered buffers, depth 16, on files of its own in the state in
// which the daemon's data file is at that time. Its buffers are ordinary memory: of 4 KiB pages but
// where the kernel makes large ones of any memory.
//
// Its files end with the object. One thread; every call runs a program, no shell, and waits for it.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tiers/base/units.h"

namespace kvkeep::bench {

struct FioOptions {
  std::string directory;     // exists; any name
  uint64_t data_bytes = 0;   // of the file that is read and overwritten
  uint64_t fresh_bytes = 0;  // that FillFirst writes
  double seconds = 0;        // of reads and overwrites

  absl::Status Validate() const;
};

class Fio {
 public:
  // Writes the file once. Unavailable: there is no fio, or it gave no result.
  static absl::StatusOr<std::unique_ptr<Fio>> Make(const FioOptions& options);
  ~Fio();
  Fio(const Fio&) = delete;

  // GB/s, by reads and writes of `block_bytes`.
  absl::StatusOr<double> Read(uint64_t block_bytes = kMiB) const;
  // Into space that the file system has set apart and nobody has written to.
  absl::StatusOr<double> FillFirst(uint64_t block_bytes = kMiB) const;
  absl::StatusOr<double> Overwrite(uint64_t block_bytes = kMiB) const;

 private:
  explicit Fio(const FioOptions& options);

  const std::string directory_;
  std::vector<std::string> file_, fresh_, timed_file_;  // its arguments
};

}  // namespace kvkeep::bench
