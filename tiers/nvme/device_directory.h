// DeviceDirectory: the files of one device, before there is any I/O on them: superblock and its
// lock, data files and their labels. Used by one thread, at open and for the lock's lifetime.
//
// The superblock is only ever replaced as a whole (new file, fsync, rename). An empty one stands
// for a format that has not finished: the next open starts it again.
//
// Errors carry OpenFailure in their code: FailedPrecondition and InvalidArgument are
// kMisconfigured, Unavailable is kInUse, all others kBroken.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tiers/nvme/device_names.h"
#include "tiers/nvme/geometry.h"
#include "tiers/nvme/posix_file.h"
#include "tiers/nvme/superblock.h"

namespace kvkeep {

class DeviceDirectory {
 public:
  // Opens the directory, which must be this user's and closed to others' writing, and locks its
  // superblock. With `may_format`, makes what is missing: the
  // directory (not its parent) and an empty superblock, provided nothing foreign lies in it.
  static absl::StatusOr<DeviceDirectory> Open(const std::string& path, bool may_format);

  const std::string& path() const { return path_; }
  std::string index_path() const { return absl::StrCat(path_, "/", kIndexName); }
  std::string live_map_path() const { return absl::StrCat(path_, "/", kLiveMapName); }
  std::string data_path(size_t number) const;

  // Returns nullopt if the format has not finished.
  absl::StatusOr<std::optional<Superblock>> ReadSuperblock() const;
  absl::Status WriteSuperblock(const Superblock& superblock);

  // Makes the directory accessible to its owner only.
  absl::Status RestrictMode();
  // Checks that `bytes` more fit on the file system.
  absl::Status CheckFreeSpace(uint64_t bytes) const;
  // Grows the data files from their present geometry `from` to `to`: longer, or more of them, all
  // labelled and on stable storage. On failure it removes the additions again.
  absl::Status GrowDataFiles(const Uuid& device, const DeviceGeometry& from,
                             const DeviceGeometry& to);
  absl::Status MakeIndexDirectory();
  // Checks that the index is a directory, and that all data files are there, as long as they should
  // be, with this device's labels. Cuts off longer or additional files, which are left from growing
  // that was cut short.
  absl::Status CheckContents(const Uuid& device, const DeviceGeometry& geometry);
  // Returns whether some file description, ours or another's, locks data file `number`.
  absl::StatusOr<bool> DataFileIsLocked(size_t number) const;
  // Removes data files, live map, index and half-written superblocks; empties the superblock.
  absl::Status RemoveContents();

 private:
  DeviceDirectory(std::string path, UniqueFd dir) : path_(std::move(path)), dir_(std::move(dir)) {}

  absl::Status CheckNothingForeign(bool superblock_is_missing) const;
  absl::Status LockSuperblock();
  absl::Status MakeDataFile(const Uuid& device, size_t number, uint64_t from, uint64_t to);
  // Cuts every data file to its size in `geometry`; removes those it does not have.
  absl::Status TrimDataFiles(const DeviceGeometry& geometry);
  std::string superblock_path() const { return path_ + "/superblock"; }

  std::string path_;
  UniqueFd dir_;
  UniqueFd superblock_;  // holds the lock
};

// Calls `lock` until it does not say Unavailable any more, for about two seconds: a killed daemon's
// I/O may hold files for a moment.
absl::Status RetryWhileLocked(absl::FunctionRef<absl::Status()> lock);

}  // namespace kvkeep
