// OfflineDevice: a device's directory held for a check: locked as by a daemon, opened read-only.
//
// Faults of superblock, data files and live map become findings; an error means that the check
// cannot go on. Constant after Open; Read is for any thread.
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
  // Returns null, with a finding, when the superblock is damaged.
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
  // Returns whether all data files are there, whole and this device's.
  bool files_are_whole() const { return files_are_whole_; }
  // Returns the live map, or nullopt if the file is missing.
  const std::optional<LiveMapContents>& live_map() const { return live_map_; }
  // Not OK: the live map is there, but the drive would not read it.
  const absl::Status& live_map_error() const { return live_map_error_; }

  // Reads whole blocks inside one data file. DataLoss has the drive's reason.
  absl::Status Read(BlockNumber first, std::span<std::byte> out) const;
  uint64_t read_bytes() const { return read_bytes_; }
  // Puts all earlier writes on stable storage.
  absl::Status SyncDataFiles() const;
  // Fills file and block of the finding: the block's place, for people.
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
