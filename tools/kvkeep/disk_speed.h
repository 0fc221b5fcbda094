// MeasureDiskSpeed: how fast a directory's drive takes and gives bytes, as kvkeep asks it to:
// O_DIRECT, whole pieces, several at a time. For `doctor`.
//
// It writes to a file without a name, which is gone however this ends, and reads what it wrote.
// Bounded by bytes, by time and by the space that is free; a drive that a daemon uses meanwhile is
// slowed down. A cache of the drive's may make a short measurement look better than a long one.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep::tools {

struct DiskSpeedOptions {
  uint64_t bytes = 512 * kMiB;             // to be written, and to be read; whole pieces of them
  std::chrono::milliseconds most{10'000};  // of writing, and of reading
  uint64_t piece_bytes = 4 * kMiB;         // of one operation; a multiple of 4 KiB
  int depth = 8;                           // operations at a time

  absl::Status Validate() const;
};

struct DiskSpeed {
  uint64_t written_bytes = 0, read_bytes = 0;  // less than asked for: the time was over
  double write_bytes_per_second = 0, read_bytes_per_second = 0;
};

// InvalidArgument: an option is out of range, or the file system has no O_DIRECT.
// ResourceExhausted: the bytes asked for are more than a tenth of the free ones. Other errors are
// the file system's.
absl::StatusOr<DiskSpeed> MeasureDiskSpeed(const std::string& dir, const DiskSpeedOptions& options);

}  // namespace kvkeep::tools
