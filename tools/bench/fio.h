// Fio: how fast the drive of a directory is read and written without kvkeep, in the same minutes:
// fio with io_uring, O_DIRECT, registered buffers, 1 MiB, depth 16, on files of its own in the
// state in which the daemon's data file is at that time.
//
// Its files end with the object. One thread; every call runs a program, no shell, and waits for it.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

  // GB/s.
  absl::StatusOr<double> Read() const;
  // Into space that the file system has set apart and nobody has written to.
  absl::StatusOr<double> FillFirst() const;
  absl::StatusOr<double> Overwrite() const;

 private:
  explicit Fio(const FioOptions& options);

  const std::string directory_;
  std::vector<std::string> file_, fresh_, timed_file_;  // its arguments
};

}  // namespace kvkeep::bench
