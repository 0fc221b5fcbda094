#include "tiers/fsck/offline_device.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/nvme/device_directory.h"
#include "tiers/nvme/device_names.h"

namespace kvkeep::fsck_internal {
namespace {

constexpr char kRestoreOrEmpty[] = "restore it, or empty the directory to start afresh";

// Refuses a device of another store, or one that holds nothing yet.
absl::Status CheckOwner(const std::string& dir, const Superblock& superblock,
                        const StoreIdentity& identity) {
  if (superblock.store == identity.store_uuid &&
      superblock.mac_key == Fingerprint(identity.mac_key)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      dir, ": belongs to store ", superblock.store.ToHex(), ", the identity given is of ",
      identity.store_uuid.ToHex(), "; give that store's state file"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<OfflineDevice>> OfflineDevice::Open(const FsckOptions& options,
                                                                   Findings* findings) {
  std::unique_ptr<OfflineDevice> device(new OfflineDevice);
  device->dir_path_ = options.dir;
  KVKEEP_ASSIGN_OR_RETURN(device->dir_,
                          OpenAt(AT_FDCWD, options.dir, O_RDONLY | O_DIRECTORY, 0, options.dir));
  KVKEEP_RETURN_IF_ERROR(RetryWhileLocked([&] { return device->LockSuperblock(); }));

  const std::string path = device->path(kSuperblockName);
  const absl::StatusOr<std::string> bytes =
      ReadWhole(device->superblock_fd_.get(), kBlockBytes, path);
  if (bytes.ok() && bytes->empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": is empty: a format that has not finished; the daemon's next start does it again"));
  }
  const absl::StatusOr<Superblock> superblock =
      bytes.ok() ? DecodeSuperblock(AsBytes(*bytes)) : bytes.status();
  if (absl::IsFailedPrecondition(superblock.status())) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", superblock.status().message()));
  }
  if (!superblock.ok()) {
    findings->Add({.problem = FsckProblem::kSuperblock,
                   .file = kSuperblockName,
                   .block = 0,
                   .what = std::string(superblock.status().message()),
                   .to_do = kRestoreOrEmpty});
    return nullptr;
  }
  KVKEEP_RETURN_IF_ERROR(CheckOwner(options.dir, *superblock, options.identity));
  device->superblock_ = *superblock;
  device->geometry_ = MakeGeometry(superblock->capacity_bytes, superblock->file_bytes);
  for (size_t i = 0; i < device->geometry_.files.size(); ++i) {
    KVKEEP_RETURN_IF_ERROR(device->OpenDataFile(i, findings));
  }
  KVKEEP_RETURN_IF_ERROR(device->ReadLiveMapFile(findings));
  return device;
}

absl::Status OfflineDevice::LockSuperblock() {
  const std::string path = this->path(kSuperblockName);
  absl::StatusOr<UniqueFd> fd = OpenAt(dir_.get(), kSuperblockName, O_RDONLY, 0, path);
  if (absl::IsNotFound(fd.status())) {
    return absl::NotFoundError(
        absl::StrCat(path, ": is missing: no kvkeep device, or its file system is not mounted"));
  }
  if (!fd.ok()) return fd.status();
  KVKEEP_RETURN_IF_ERROR(TryLock(fd->get(), path));
  // The last owner may have replaced the file while we waited: then we hold the wrong one.
  struct stat locked, named;
  if (fstat(fd->get(), &locked) != 0) return ErrnoStatus(errno, path, "stat");
  if (fstatat(dir_.get(), kSuperblockName, &named, AT_SYMLINK_NOFOLLOW) != 0) {
    return ErrnoStatus(errno, path, "stat");
  }
  if (locked.st_ino != named.st_ino || locked.st_dev != named.st_dev) {
    return absl::UnavailableError(absl::StrCat(path, ": was just replaced"));
  }
  superblock_fd_ = *std::move(fd);
  return absl::OkStatus();
}

absl::Status OfflineDevice::OpenDataFile(size_t number, Findings* findings) {
  FsckFinding finding{
      .problem = FsckProblem::kDataFile, .file = DataFileName(number), .to_do = kRestoreOrEmpty};
  KVKEEP_CHECK(number == files_.size());
  files_.emplace_back();
  const absl::Status opened = RetryWhileLocked([&]() -> absl::Status {
    KVKEEP_ASSIGN_OR_RETURN(
        DeviceFile file,
        DeviceFile::Open({.path = path(finding.file), .read_only = true, .lock = true}));
    files_.back().emplace(std::move(file));
    return absl::OkStatus();
  });
  if (absl::IsUnavailable(opened)) return opened;
  if (!opened.ok()) {
    files_are_whole_ = false;
    finding.what = std::string(opened.message());
    findings->Add(std::move(finding));
    return absl::OkStatus();
  }
  struct stat st;
  if (fstat(files_.back()->fd(), &st) != 0) return ErrnoStatus(errno, finding.file, "stat");
  const auto size = static_cast<uint64_t>(st.st_size);
  if (size != geometry_.files[number]) {
    finding.notice = size > geometry_.files[number];
    files_are_whole_ &= finding.notice;
    finding.what = absl::StrCat("is ", size, " bytes, expected ", geometry_.files[number]);
    if (finding.notice) {
      finding.to_do = "nothing: left from growing that was cut short, the daemon cuts it off";
    }
    findings->Add(std::move(finding));
  }
  const uint64_t problems = findings->problems();
  CheckLabel(number, findings);
  files_are_whole_ &= findings->problems() == problems;
  return absl::OkStatus();
}

void OfflineDevice::CheckLabel(size_t number, Findings* findings) const {
  FsckFinding finding{.problem = FsckProblem::kDataFile, .file = DataFileName(number), .block = 0};
  ReadBuffer buffer;
  const std::span<std::byte> block = buffer.First(kBlockBytes);
  const BlockNumber first(number * (geometry_.file_bytes / kBlockBytes));
  if (const absl::Status status = Read(first, block); !status.ok()) {
    finding.problem = FsckProblem::kUnreadable;
    finding.what = std::string(status.message());
    finding.to_do = "look at the drive";
    return findings->Add(std::move(finding));
  }
  const absl::StatusOr<DataFileLabel> label = DecodeLabel(block);
  if (label.ok() && *label == DataFileLabel{.device = superblock_.device,
                                            .number = static_cast<uint32_t>(number)}) {
    return;
  }
  if (label.ok()) {
    finding.what = absl::StrCat("is file ", label->number, " of device ", label->device.ToHex(),
                                ", expected file ", number, " of ", superblock_.device.ToHex());
    finding.to_do = "put the right file back";
  } else {
    finding.what = absl::StrCat("its label ", label.status().message());
    finding.to_do = kRestoreOrEmpty;
  }
  findings->Add(std::move(finding));
}

absl::Status OfflineDevice::ReadLiveMapFile(Findings* findings) {
  const std::string path = this->path(kLiveMapName);
  FsckFinding finding{.problem = FsckProblem::kLiveMap,
                      .file = kLiveMapName,
                      .to_do = "start the daemon: it writes the map anew from the index"};
  const absl::StatusOr<UniqueFd> fd = OpenAt(dir_.get(), kLiveMapName, O_RDONLY, 0, path);
  if (absl::IsNotFound(fd.status())) {
    finding.notice = true;  // as a device of an earlier version
    finding.what = "is missing: until it is there, a rebuilt index would be empty";
    findings->Add(std::move(finding));
    return absl::OkStatus();
  }
  if (!fd.ok()) return fd.status();
  absl::StatusOr<LiveMapContents> contents =
      ReadLiveMap(fd->get(), path, superblock_.device, space().blocks);
  if (!contents.ok()) {
    live_map_error_ = contents.status();
    finding.what = std::string(contents.status().message());
    findings->Add(std::move(finding));
    return absl::OkStatus();
  }
  for (const uint64_t page : contents->damaged_pages) {
    finding.block = page;
    finding.what = "a page does not match its checksum";
    findings->Add(finding);
  }
  live_map_ = *std::move(contents);
  return absl::OkStatus();
}

absl::Status OfflineDevice::Read(BlockNumber first, std::span<std::byte> out) const {
  const size_t number = first.value() * kBlockBytes / geometry_.file_bytes;
  KVKEEP_CHECK(number < files_.size() && out.size() % kBlockBytes == 0);
  const std::optional<DeviceFile>& file = files_[number];
  const uint64_t in_file = first.value() * kBlockBytes % geometry_.file_bytes;
  KVKEEP_CHECK(in_file + out.size() <= geometry_.files[number]);
  if (!file.has_value()) return absl::DataLossError("its data file is missing");
  const absl::Status status = ReadAt(file->fd(), in_file, out, file->path());
  if (status.ok()) read_bytes_ += out.size();
  return status;
}

absl::Status OfflineDevice::SyncDataFiles() const {
  for (const std::optional<DeviceFile>& file : files_) {
    if (file.has_value()) KVKEEP_RETURN_IF_ERROR(file->Sync());
  }
  return absl::OkStatus();
}

void OfflineDevice::Locate(BlockNumber block, FsckFinding* finding) const {
  const uint64_t per_file = geometry_.file_bytes / kBlockBytes;
  KVKEEP_CHECK(block.value() / per_file < geometry_.files.size());
  finding->file = DataFileName(block.value() / per_file);
  finding->block = block.value() % per_file;
}

}  // namespace kvkeep::fsck_internal
