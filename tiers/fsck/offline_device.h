// OfflineDevice: a device's directory held for a check: locked as by a daemon, opened read-only.
//
// What is wrong with superblock, data files and live map becomes a finding; what bars the check is
// the error. Constant after Open; Read is for any thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/extent.h"
#include "tiers/fsck/findings.h"
#include "tiers/fsck/fsck.h"
#include "tiers/fsck/image_check.h"
#include "tiers/io/device_file.h"
#include "tiers/nvme/geometry.h"
#include "tiers/nvme/live_map.h"
#include "tiers/nvme/superblock.h"

namespace kvkeep::fsck_internal {

// Memory for reads past the page cache.
class ReadBuffer {
 public:
  static constexpr size_t kBytes = 4 * kMiB;
  ReadBuffer() : data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kBytes)), &free) {
    KVKEEP_CHECK(data_ != nullptr);
  }
  std::span<std::byte> First(size_t bytes) {
    KVKEEP_CHECK(bytes <= kBytes);
    return {data_.get(), bytes};
  }

 private:
  std::unique_ptr<std::byte, decltype(&free)> data_;
};

class OfflineDevice {
 public:
  // Null, with a finding, when the superblock is damaged.
  static absl::StatusOr<std::unique_ptr<OfflineDevice>> Open(const FsckOptions& options,
                                                             Findings* findings);

  const Superblock& superblock() const { return superblock_; }
  const DeviceGeometry& geometry() const { return geometry_; }
  DeviceSpace space() const {
    return {.device = superblock_.device,
            .blocks = BlockCount(geometry_.data_bytes() / kBlockBytes),
            .file_blocks = BlockCount(geometry_.file_bytes / kBlockBytes)};
  }
  std::string path(const std::string& name) const { return dir_path_ + "/" + name; }
  int dir() const { return dir_.get(); }
  // All data files are there, whole and this device's.
  bool files_are_whole() const { return files_are_whole_; }
  // None: the file is missing.
  const std::optional<LiveMapContents>& live_map() const { return live_map_; }
  // It is there, and the drive would not read it.
  const absl::Status& live_map_error() const { return live_map_error_; }

  // Whole blocks inside one data file. DataLoss with the drive's reason.
  absl::Status Read(BlockNumber first, std::span<std::byte> out) const;
  uint64_t read_bytes() const { return read_bytes_; }
  // What was written so far is on stable storage afterwards.
  absl::Status SyncDataFiles() const;
  // The place of a block for people: fills file and block.
  void Locate(BlockNumber block, FsckFinding* finding) const;

 private:
  OfflineDevice() = default;
  absl::Status LockSuperblock();
  absl::Status OpenDataFile(size_t number, Findings* findings);
  void CheckLabel(size_t number, Findings* findings) const;
  absl::Status ReadLiveMapFile(Findings* findings);

  std::string dir_path_;
  UniqueFd dir_;
  UniqueFd superblock_fd_;  // holds the lock
  Superblock superblock_;
  DeviceGeometry geometry_;
  std::vector<std::optional<DeviceFile>> files_;
  bool files_are_whole_ = true;
  std::optional<LiveMapContents> live_map_;
  absl::Status live_map_error_;
  mutable std::atomic<uint64_t> read_bytes_ = 0;
};

}  // namespace kvkeep::fsck_internal
