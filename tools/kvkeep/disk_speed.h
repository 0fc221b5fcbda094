// MeasureDiskSpeed: measures the write and read speed of a directory's drive with kvkeep's own kind
// of I/O: O_DIRECT, whole pieces, several at a time. For `doctor`.
//
// It writes to a file without a name, which vanishes however this ends, and reads it back. Bounded
// by bytes, by time and by free space. It slows down a drive that a daemon uses meanwhile. A cache
// of the drive may make a short measurement look better than a long one.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep::tools {

struct DiskSpeedOptions {
  uint64_t bytes = 512 * kMiB;             // to write, and to read; whole pieces only
  std::chrono::milliseconds most{10'000};  // limit for writing, and for reading
  uint64_t piece_bytes = 4 * kMiB;         // of one operation; a multiple of 4 KiB
  int depth = 8;                           // operations at a time

  absl::Status Validate() const;
};

struct DiskSpeed {
  uint64_t written_bytes = 0, read_bytes = 0;  // less than DiskSpeedOptions::bytes: time ran out
  double write_bytes_per_second = 0, read_bytes_per_second = 0;
};

// InvalidArgument: an option is out of range, or the file system has no O_DIRECT.
// ResourceExhausted: `options.bytes` is more than a tenth of the free bytes. Other errors are the
// file system's.
absl::StatusOr<DiskSpeed> MeasureDiskSpeed(const std::string& dir, const DiskSpeedOptions& options);

}  // namespace kvkeep::tools
