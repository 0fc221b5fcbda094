// DeviceFile: an open regular file or block device and what is known about it: size, and whether it
// is read and written past the page cache (O_DIRECT).
//
// Asks the kernel for the alignment O_DIRECT needs (statx) instead of assuming it. Where O_DIRECT
// is not to be had, the file is opened buffered and `why_buffered` says the reason. Owns the
// descriptor and, if asked for, an exclusive lock on the file. Constant after Open, so usable by
// any thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "tiers/io/io_engine.h"

namespace kvkeep {

class DeviceFile {
 public:
  // NotFound, FailedPrecondition (not permitted, not a file or block device, smaller than a block),
  // ResourceExhausted (descriptors), Unavailable (device gone, or locked by another).
  static absl::StatusOr<DeviceFile> Open(const DeviceOptions& options);

  DeviceFile(DeviceFile&& other) noexcept;
  DeviceFile& operator=(DeviceFile&&) = delete;
  ~DeviceFile();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  bool read_only() const { return read_only_; }
  uint64_t size_bytes() const { return size_bytes_; }  // whole blocks
  bool direct() const { return why_buffered_.empty(); }
  const std::string& why_buffered() const { return why_buffered_; }

  // fdatasync. Blocks.
  absl::Status Sync() const;

 private:
  DeviceFile(int fd, const std::string& path, bool read_only)
      : fd_(fd), path_(path), read_only_(read_only) {}

  absl::Status Lock();
  absl::Status ReadSize();
  // Empty when O_DIRECT works with addresses and offsets aligned to blocks.
  std::string WhyNotDirect() const;

  int fd_;
  std::string path_;
  bool read_only_;
  bool locked_ = false;
  uint64_t size_bytes_ = 0;
  std::string why_buffered_;
};

}  // namespace kvkeep
