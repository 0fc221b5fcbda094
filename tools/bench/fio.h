// Fio: how fast the drive of a directory is read without kvkeep, in the same minutes: fio with
// io_uring, O_DIRECT, registered buffers, depth 16 and blocks of 1 MiB, on a file of its own that
// is written once, as the daemon's data file. Its buffers are ordinary memory: of 4 KiB pages but
// where the kernel makes large ones of any memory.
//
// Its file ends with the object. One thread; every call runs a program, no shell, and waits for it.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kvkeep::bench {

struct FioOptions {
  std::string directory;    // exists; any name
  uint64_t data_bytes = 0;  // of the file that is read
  double seconds = 0;       // of reads

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

 private:
  explicit Fio(const FioOptions& options);

  const std::string directory_;
  std::vector<std::string> file_, timed_file_;  // its arguments
};

}  // namespace kvkeep::bench
