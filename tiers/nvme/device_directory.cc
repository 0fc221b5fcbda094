#include "tiers/nvme/device_directory.h"

#include <absl/algorithm/container.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/own_directory.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/test_point.h"

namespace kvkeep {
namespace {

// Names of our files besides superblock and data files.
constexpr const char* kOurNames[] = {kIndexName, kNewIndexName, kLostIndexName, kLiveMapName,
                                     kNewLiveMapName, kProbeName};
constexpr absl::string_view kDataPrefix = "data.";
constexpr auto kLockPatience = std::chrono::seconds(2);
constexpr auto kLockPause = std::chrono::milliseconds(50);

bool IsDataName(absl::string_view name) {
  if (!absl::StartsWith(name, kDataPrefix) || name.size() != kDataPrefix.size() + 3) return false;
  return name.substr(kDataPrefix.size()).find_first_not_of("0123456789") == absl::string_view::npos;
}

absl::StatusOr<uint64_t> FileSize(int fd, const std::string& path) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, path, "stat");
  if (!S_ISREG(st.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a regular file"));
  }
  return static_cast<uint64_t>(st.st_size);
}

absl::StatusOr<UniqueFd> OpenDirectory(const std::string& path, bool may_make) {
  absl::StatusOr<UniqueFd> dir = OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, path);
  if (absl::IsFailedPrecondition(dir.status())) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": is not a directory; name an empty directory, or one that does not exist"));
  }
  if (!absl::IsNotFound(dir.status()) || !may_make) return dir;
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, path, "cannot be made (is its file system mounted?)");
  }
  return OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, path);
}

}  // namespace

absl::Status RetryWhileLocked(absl::FunctionRef<absl::Status()> lock) {
  const MonotonicTime give_up = RealClock()->Now() + kLockPatience;
  while (true) {
    absl::Status status = lock();
    if (!absl::IsUnavailable(status) || RealClock()->Now() >= give_up) return status;
    // Waits for another process to end, as nothing tells us when it has.
    std::this_thread::sleep_for(kLockPause);
  }
}

std::string DeviceDirectory::data_path(size_t number) const {
  return absl::StrCat(path_, "/", DataFileName(number));
}

absl::StatusOr<DeviceDirectory> DeviceDirectory::Open(const std::string& path, bool may_format) {
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd fd, OpenDirectory(path, may_format));
  KVKEEP_RETURN_IF_ERROR(CheckOwnDirectory(fd.get(), path));
  DeviceDirectory directory(path, std::move(fd));
  const bool missing =
      faccessat(directory.dir_.get(), kSuperblockName, F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
      errno == ENOENT;
  if (missing) {
    if (!may_format) {
      return absl::NotFoundError(
          absl::StrCat(directory.superblock_path(), ": is missing; is the file system mounted?"));
    }
    KVKEEP_RETURN_IF_ERROR(directory.CheckNothingForeign(/*superblock_is_missing=*/true));
  }
  KVKEEP_RETURN_IF_ERROR(directory.LockSuperblock());
  return directory;
}

absl::Status DeviceDirectory::CheckNothingForeign(bool superblock_is_missing) const {
  std::error_code error;
  for (std::filesystem::directory_iterator it(path_, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name == "lost+found" || name == kSuperblockName || name == kNewSuperblockName) continue;
    const bool ours = IsDataName(name) ||
                      absl::c_any_of(kOurNames, [&name](const char* ours) { return name == ours; });
    if (!ours) {
      return absl::FailedPreconditionError(absl::StrCat(
          path_, ": holds '", name,
          "' but no kvkeep device; name an empty directory, or one that does not exist"));
    }
    if (superblock_is_missing) {
      return absl::DataLossError(
          absl::StrCat(superblock_path(), ": is missing though '", name,
                       "' is there; restore it, or empty the directory to start afresh"));
    }
  }
  if (error) return ErrnoStatus(error.value(), path_, "list");
  return absl::OkStatus();
}

absl::Status DeviceDirectory::LockSuperblock() {
  return RetryWhileLocked([this]() -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(
        UniqueFd fd,
        OpenAt(dir_.get(), kSuperblockName, O_RDWR | O_CREAT, 0600, superblock_path()));
    KVKEEP_RETURN_IF_ERROR(TryLock(fd.get(), superblock_path()));
    // The last owner may have replaced the file while we waited: then we hold the wrong one.
    struct stat locked, named;
    if (fstat(fd.get(), &locked) != 0) return ErrnoStatus(errno, superblock_path(), "stat");
    if (fstatat(dir_.get(), kSuperblockName, &named, AT_SYMLINK_NOFOLLOW) != 0) {
      return ErrnoStatus(errno, superblock_path(), "stat");
    }
    if (locked.st_ino != named.st_ino || locked.st_dev != named.st_dev) {
      return absl::UnavailableError(absl::StrCat(superblock_path(), ": was just replaced"));
    }
    superblock_ = std::move(fd);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::optional<Superblock>> DeviceDirectory::ReadSuperblock() const {
  const std::string path = superblock_path();
  KVKEEP_ASSIGN_OR_RETURN(const std::string bytes, ReadWhole(superblock_.get(), kBlockBytes, path));
  if (bytes.empty()) {
    KVKEEP_RETURN_IF_ERROR(CheckNothingForeign(/*superblock_is_missing=*/false));
    return std::nullopt;
  }
  absl::StatusOr<Superblock> superblock = DecodeSuperblock(AsBytes(bytes));
  if (superblock.ok()) return std::optional<Superblock>(*superblock);
  const bool damaged = absl::IsDataLoss(superblock.status());
  return absl::Status(superblock.status().code(),
                      absl::StrCat(path, ": ", superblock.status().message(),
                                   damaged ? "; empty the directory to start afresh" : ""));
}

absl::Status DeviceDirectory::WriteSuperblock(const Superblock& superblock) {
  KVKEEP_CHECK(superblock_.valid());
  KVKEEP_CHECK(DecodeSuperblock(EncodeSuperblock(superblock)).ok());
  const std::string path = absl::StrCat(path_, "/", kNewSuperblockName);
  KVKEEP_ASSIGN_OR_RETURN(
      UniqueFd fd, OpenAt(dir_.get(), kNewSuperblockName, O_RDWR | O_CREAT | O_TRUNC, 0600, path));
  // Locked before it gets its name, so that the lock has no gap.
  KVKEEP_RETURN_IF_ERROR(TryLock(fd.get(), path));
  KVKEEP_RETURN_IF_ERROR(WriteAt(fd.get(), 0, EncodeSuperblock(superblock), path));
  KVKEEP_RETURN_IF_ERROR(FlushFile(fd.get(), path));
  TestPoint("superblock-written");
  if (renameat(dir_.get(), kNewSuperblockName, dir_.get(), kSuperblockName) != 0) {
    return ErrnoStatus(errno, path, "rename");
  }
  TestPoint("superblock-renamed");
  superblock_ = std::move(fd);
  return FlushFile(dir_.get(), path_);
}

absl::Status DeviceDirectory::RestrictMode() {
  const absl::Status kept_out = KeepOthersOut(dir_.get(), path_);
  if (kept_out.ok()) return kept_out;
  return absl::FailedPreconditionError(std::string(kept_out.message()));
}

absl::Status DeviceDirectory::CheckFreeSpace(uint64_t bytes) const {
  struct statvfs fs;
  if (fstatvfs(dir_.get(), &fs) != 0) return ErrnoStatus(errno, path_, "statvfs");
  const uint64_t free = uint64_t{fs.f_bavail} * fs.f_frsize;
  if (bytes <= free) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path_, ": capacity_bytes needs ", bytes,
                                                    " bytes more, the file system has ", free,
                                                    "; lower capacity_bytes or free space"));
}

absl::Status DeviceDirectory::MakeDataFile(const Uuid& device, size_t number, uint64_t from,
                                           uint64_t to) {
  KVKEEP_CHECK(number < kMaxDataFiles);
  KVKEEP_CHECK(from < to && from % kBlockBytes == 0 && to % kBlockBytes == 0);
  const std::string path = data_path(number);
  const int flags = O_RDWR | O_CREAT | (from == 0 ? O_TRUNC : 0);
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd,
                          OpenAt(dir_.get(), DataFileName(number), flags, 0600, path));
  KVKEEP_RETURN_IF_ERROR(Preallocate(fd.get(), from, to, path));
  TestPoint("data-file");
  if (from == 0) {
    const DataFileLabel label = {.device = device, .number = static_cast<uint32_t>(number)};
    KVKEEP_RETURN_IF_ERROR(WriteAt(fd.get(), 0, EncodeLabel(label), path));
  }
  return FlushFile(fd.get(), path);
}

absl::Status DeviceDirectory::GrowDataFiles(const Uuid& device, const DeviceGeometry& from,
                                            const DeviceGeometry& to) {
  KVKEEP_CHECK(to.files.size() >= from.files.size());
  for (size_t i = 0; i < to.files.size(); ++i) {
    const uint64_t had = i < from.files.size() ? from.files[i] : 0;
    KVKEEP_CHECK(to.files[i] >= had);
    if (had == to.files[i]) continue;
    const absl::Status made = MakeDataFile(device, i, had, to.files[i]);
    if (!made.ok()) {
      TrimDataFiles(from).IgnoreError();  // the first error is the one to tell
      return made;
    }
  }
  return FlushFile(dir_.get(), path_);
}

absl::Status DeviceDirectory::TrimDataFiles(const DeviceGeometry& geometry) {
  for (size_t i = 0; i < kMaxDataFiles; ++i) {
    const std::string name = DataFileName(i), path = data_path(i);
    if (i >= geometry.files.size()) {
      if (unlinkat(dir_.get(), name.c_str(), 0) != 0) {
        if (errno == ENOENT) break;  // they are numbered without gaps
        return ErrnoStatus(errno, path, "unlink");
      }
      continue;
    }
    KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dir_.get(), name, O_RDWR, 0, path));
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t size, FileSize(fd.get(), path));
    if (size > geometry.files[i] &&
        ftruncate(fd.get(), static_cast<off_t>(geometry.files[i])) != 0) {
      return ErrnoStatus(errno, path, "truncate");
    }
  }
  return absl::OkStatus();
}

absl::Status DeviceDirectory::MakeIndexDirectory() {
  if (mkdirat(dir_.get(), kIndexName, 0700) != 0) return ErrnoStatus(errno, index_path(), "mkdir");
  return absl::OkStatus();
}

absl::Status DeviceDirectory::CheckContents(const Uuid& device, const DeviceGeometry& geometry) {
  KVKEEP_RETURN_IF_ERROR(
      OpenAt(dir_.get(), kIndexName, O_RDONLY | O_DIRECTORY, 0, index_path()).status());
  for (size_t i = 0; i < geometry.files.size(); ++i) {
    const std::string path = data_path(i);
    KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd,
                            OpenAt(dir_.get(), DataFileName(i), O_RDWR, 0, path));
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t size, FileSize(fd.get(), path));
    if (size < geometry.files[i]) {
      return absl::DataLossError(absl::StrCat(path, ": is ", size, " bytes, expected ",
                                              geometry.files[i],
                                              "; restore it, or empty the directory"));
    }
    Block block;
    KVKEEP_RETURN_IF_ERROR(ReadAt(fd.get(), 0, block, path));
    const absl::StatusOr<DataFileLabel> label = DecodeLabel(block);
    if (!label.ok()) {
      return absl::Status(label.status().code(),
                          absl::StrCat(path, ": its label ", label.status().message()));
    }
    if (*label != DataFileLabel{.device = device, .number = static_cast<uint32_t>(i)}) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": is file ", label->number, " of device ", label->device.ToHex(),
                       ", expected file ", i, " of ", device.ToHex(), "; put the right file back"));
    }
  }
  return TrimDataFiles(geometry);
}

absl::StatusOr<bool> DeviceDirectory::DataFileIsLocked(size_t number) const {
  const std::string path = data_path(number);
  KVKEEP_ASSIGN_OR_RETURN(const UniqueFd fd,
                          OpenAt(dir_.get(), DataFileName(number), O_RDWR, 0, path));
  const absl::Status lock = TryLock(fd.get(), path);
  if (!lock.ok() && !absl::IsUnavailable(lock)) return lock;
  return !lock.ok();
}

absl::Status DeviceDirectory::RemoveContents() {
  // Empties the superblock first: it vouches for the rest, perhaps already, when the last step of a
  // format failed.
  if (ftruncate(superblock_.get(), 0) != 0) {
    return ErrnoStatus(errno, superblock_path(), "truncate");
  }
  std::error_code error;
  for (const char* name : kOurNames) {
    const std::string path = absl::StrCat(path_, "/", name);
    std::filesystem::remove_all(path, error);
    if (error) return ErrnoStatus(error.value(), path, "remove");
  }
  for (size_t i = 0; i < kMaxDataFiles; ++i) {
    if (unlinkat(dir_.get(), DataFileName(i).c_str(), 0) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, data_path(i), "unlink");
    }
  }
  unlinkat(dir_.get(), kNewSuperblockName, 0);
  return absl::OkStatus();
}

}  // namespace kvkeep
