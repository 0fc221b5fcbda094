#include "tiers/nvme/nvme_device.h"

#include <absl/strings/str_cat.h>

#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/index/rocksdb_index.h"
#include "tiers/nvme/device_directory.h"
#include "tiers/nvme/geometry.h"
#include "tiers/nvme/live_index.h"
#include "tiers/nvme/multi_file_device.h"
#include "tiers/nvme/superblock.h"

namespace kvkeep {
namespace {

class DirectoryDevice final : public NvmeDevice {
 public:
  DirectoryDevice(const Uuid& uuid, DeviceDirectory directory, DeviceGeometry geometry,
                  std::unique_ptr<DeviceTimes> times, std::unique_ptr<Device> io,
                  std::unique_ptr<ChunkIndex> index)
      : uuid_(uuid),
        directory_(std::move(directory)),
        geometry_(std::move(geometry)),
        times_(std::move(times)),
        io_(std::move(io)),
        index_(std::move(index)) {
    KVKEEP_CHECK(io_->size_bytes() == geometry_.data_bytes());
  }

  const Uuid& uuid() const override { return uuid_; }
  const std::string& dir() const override { return directory_.path(); }
  BlockCount capacity_blocks() const override {
    return BlockCount(io_->size_bytes() / kBlockBytes);
  }
  BlockCount barrier_blocks() const override {
    return BlockCount(geometry_.file_bytes / kBlockBytes);
  }
  ExtentList ReservedExtents() const override;
  uint64_t used_directory_bytes() const override {
    return geometry_.data_bytes() + geometry_.live_map_bytes + kBlockBytes + index_->disk_bytes();
  }
  uint64_t capacity_bytes() const override { return geometry_.capacity_bytes; }
  bool index_over_budget() const override {
    return index_->disk_bytes() > geometry_.index_budget();
  }
  Device& io() override { return *io_; }
  ChunkIndex& index() override { return *index_; }
  const DeviceTimes* times() const override { return times_.get(); }

 private:
  // In this order, so that the lock on the superblock goes last.
  const Uuid uuid_;
  const DeviceDirectory directory_;
  const DeviceGeometry geometry_;
  const std::unique_ptr<DeviceTimes> times_;
  const std::unique_ptr<Device> io_;
  const std::unique_ptr<ChunkIndex> index_;
};

ExtentList DirectoryDevice::ReservedExtents() const {
  ExtentList labels;
  for (size_t i = 0; i < geometry_.files.size(); ++i) {
    labels.push_back({BlockNumber(i * barrier_blocks().value()), BlockCount(1)});
  }
  return labels;
}

// The arguments of OpenNvmeDevice.
struct Request {
  const NvmeDeviceOptions& options;
  const Uuid& store_uuid;
  const MacKeyFingerprint mac_key;
  IoEngine* const engine;
  RandomSource* const random;
  const std::function<void()>& locked;
};

RocksDbIndexOptions IndexOptions(const DeviceGeometry& geometry, bool create) {
  return {.create = create, .write_buffer_bytes = geometry.index_write_buffer_bytes()};
}

absl::Status FormatContents(DeviceDirectory& directory, const Superblock& superblock) {
  const DeviceGeometry geometry = MakeGeometry(superblock.capacity_bytes, superblock.file_bytes);
  KVKEEP_RETURN_IF_ERROR(
      directory.CheckFreeSpace(geometry.data_bytes() + geometry.index_allowance));
  KVKEEP_RETURN_IF_ERROR(directory.GrowDataFiles(superblock.device, {}, geometry));
  KVKEEP_RETURN_IF_ERROR(directory.MakeIndexDirectory());
  // Makes the index and closes it again: the superblock vouches for a whole device, so it comes
  // last.
  KVKEEP_RETURN_IF_ERROR(OpenRocksDbIndex(directory.index_path(), superblock.device,
                                          IndexOptions(geometry, /*create=*/true))
                             .status());
  return directory.WriteSuperblock(superblock);
}

absl::StatusOr<Superblock> Format(const Request& request, DeviceDirectory& directory) {
  if (!request.options.may_format) {
    return absl::DataLossError(absl::StrCat(
        directory.path(), ": the superblock is empty; empty the directory to start afresh"));
  }
  KVKEEP_RETURN_IF_ERROR(directory.RestrictMode());
  KVKEEP_RETURN_IF_ERROR(directory.RemoveContents());
  const Superblock superblock = {.store = request.store_uuid,
                                 .device = request.random->Next<Uuid>(),
                                 .capacity_bytes = request.options.capacity_bytes,
                                 .file_bytes = request.options.file_bytes,
                                 .mac_key = request.mac_key};
  const absl::Status made = FormatContents(directory, superblock);
  if (made.ok()) return superblock;
  directory.RemoveContents()
      .IgnoreError();  // gives the space back; the first error is the one to tell
  return made;
}

absl::Status CheckOwnership(const Request& request, const std::string& dir,
                            const Superblock& superblock) {
  if (superblock.store != request.store_uuid) {
    return absl::DataLossError(absl::StrCat(
        dir, ": belongs to store ", superblock.store.ToHex(), ", this is store ",
        request.store_uuid.ToHex(), "; bring that store's state directory back, or, to give up ",
        "what the device has, empty the directory; then restart the daemon"));
  }
  if (superblock.mac_key != request.mac_key) {
    return absl::DataLossError(absl::StrCat(
        dir, ": was written with another MAC key; bring its state directory back, or, to give up ",
        "what the device has, empty the directory; then restart the daemon"));
  }
  return absl::OkStatus();
}

// Makes the device as large as the options say, in place.
absl::Status Grow(const Request& request, DeviceDirectory& directory, Superblock& superblock) {
  const DeviceGeometry before = MakeGeometry(superblock.capacity_bytes, superblock.file_bytes);
  Superblock larger = superblock;
  larger.capacity_bytes = request.options.capacity_bytes;
  if (larger.capacity_bytes / larger.file_bytes > kMaxDataFiles) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory.path(), ": capacity_bytes ", larger.capacity_bytes, " takes more than ",
        kMaxDataFiles, " data files of ", larger.file_bytes, " bytes; lower capacity_bytes"));
  }
  KVKEEP_CHECK(larger.capacity_bytes > superblock.capacity_bytes);
  const DeviceGeometry after = MakeGeometry(larger.capacity_bytes, larger.file_bytes);
  KVKEEP_RETURN_IF_ERROR(directory.CheckFreeSpace(after.capacity_bytes - before.capacity_bytes));
  KVKEEP_RETURN_IF_ERROR(directory.GrowDataFiles(superblock.device, before, after));
  KVKEEP_RETURN_IF_ERROR(directory.WriteSuperblock(larger));
  superblock = larger;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> OpenDataFiles(const Request& request,
                                                      const DeviceDirectory& directory,
                                                      const DeviceGeometry& geometry,
                                                      DeviceTimes* times) {
  std::vector<std::unique_ptr<Device>> files;
  for (size_t i = 0; i < geometry.files.size(); ++i) {
    const DeviceOptions options = {.path = directory.data_path(i),
                                   .depth = request.options.depth,
                                   .lock = true,
                                   .times = times,
                                   .beside = files.empty() ? nullptr : files.front().get()};
    const absl::Status opened = RetryWhileLocked([&]() -> absl::Status {
      KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<Device> file, request.engine->Open(options));
      files.push_back(std::move(file));
      return absl::OkStatus();
    });
    KVKEEP_RETURN_IF_ERROR(opened);
    // The engine must hold the lock: only the description that I/O goes through outlives a killed
    // process for as long as its I/O does.
    KVKEEP_ASSIGN_OR_RETURN(const bool locked, directory.DataFileIsLocked(i));
    if (!locked) {
      return absl::UnavailableError(
          absl::StrCat(options.path, ": was replaced while it was opened; try again"));
    }
  }
  return std::make_unique<MultiFileDevice>(std::move(files), geometry.files, geometry.file_bytes);
}

// Turns an error of the engine or the index into one of the device.
absl::Status AsBroken(const absl::Status& status) {
  if (absl::IsUnavailable(status)) return status;
  return absl::DataLossError(status.message());
}

absl::StatusOr<NvmeDevice::OpenResult> Open(const Request& request) {
  NvmeDevice::OpenResult result;
  KVKEEP_RETURN_IF_ERROR(request.options.Validate());
  KVKEEP_ASSIGN_OR_RETURN(DeviceDirectory directory,
                          DeviceDirectory::Open(request.options.dir, request.options.may_format));
  KVKEEP_ASSIGN_OR_RETURN(std::optional<Superblock> superblock, directory.ReadSuperblock());
  if (!superblock.has_value()) {
    KVKEEP_ASSIGN_OR_RETURN(superblock, Format(request, directory));
    result.formatted = true;
  }
  KVKEEP_RETURN_IF_ERROR(CheckOwnership(request, directory.path(), *superblock));
  KVKEEP_RETURN_IF_ERROR(directory.RestrictMode());
  KVKEEP_RETURN_IF_ERROR(directory.CheckContents(
      superblock->device, MakeGeometry(superblock->capacity_bytes, superblock->file_bytes)));
  if (superblock->capacity_bytes < request.options.capacity_bytes) {
    KVKEEP_RETURN_IF_ERROR(Grow(request, directory, *superblock));
  }
  DeviceGeometry geometry = MakeGeometry(superblock->capacity_bytes, superblock->file_bytes);

  auto times = std::make_unique<DeviceTimes>();
  absl::StatusOr<std::unique_ptr<Device>> io =
      OpenDataFiles(request, directory, geometry, times.get());
  if (!io.ok()) return AsBroken(io.status());
  if (request.locked) request.locked();
  absl::StatusOr<std::unique_ptr<ChunkIndex>> index = OpenRocksDbIndex(
      directory.index_path(), superblock->device, IndexOptions(geometry, /*create=*/false));
  if (!index.ok()) {
    if (absl::IsFailedPrecondition(index.status())) return index.status();
    if (absl::IsUnavailable(index.status())) return index.status();
    return absl::DataLossError(absl::StrCat(index.status().message(), "; stop the daemon and run ",
                                            "kvkeep fsck --rebuild-index ", directory.path()));
  }
  const BlockCount blocks((*io)->size_bytes() / kBlockBytes);
  absl::StatusOr<LiveMap> map =
      LiveMap::Open(directory.live_map_path(), superblock->device, blocks);
  if (!map.ok()) return AsBroken(map.status());
  auto live = std::make_unique<LiveIndex>(*std::move(index), *std::move(map), blocks);
  result.device = std::make_unique<DirectoryDevice>(superblock->device, std::move(directory),
                                                    std::move(geometry), std::move(times),
                                                    *std::move(io), std::move(live));
  return result;
}

OpenFailure FailureOf(const absl::Status& status) {
  if (absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status)) {
    return OpenFailure::kMisconfigured;
  }
  return absl::IsUnavailable(status) ? OpenFailure::kInUse : OpenFailure::kBroken;
}

}  // namespace

absl::Status NvmeDeviceOptions::Validate() const {
  if (dir.empty()) return absl::InvalidArgumentError("dir of a device is empty");
  if (capacity_bytes < kMinDeviceCapacityBytes) {
    return absl::InvalidArgumentError(absl::StrCat(dir, ": capacity_bytes is ", capacity_bytes,
                                                   ", at least ", kMinDeviceCapacityBytes,
                                                   " are needed"));
  }
  if (file_bytes < kMinDataFileBytes || file_bytes > kMaxDataFileBytes ||
      file_bytes % kBlockBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(dir, ": file_bytes is ", file_bytes,
                                                   ", allowed are multiples of 4096 from ",
                                                   kMinDataFileBytes, " to ", kMaxDataFileBytes));
  }
  if (capacity_bytes / file_bytes > kMaxDataFiles) {
    return absl::InvalidArgumentError(absl::StrCat(dir, ": capacity_bytes ", capacity_bytes,
                                                   " takes more than ", kMaxDataFiles,
                                                   " data files of ", file_bytes, " bytes"));
  }
  if (depth < 1 || depth > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": depth is ", depth, ", allowed are 1 to 1024"));
  }
  return absl::OkStatus();
}

NvmeDevice::OpenResult OpenNvmeDevice(const NvmeDeviceOptions& options, const Uuid& store_uuid,
                                      const MacKey& mac_key, IoEngine* engine,
                                      RandomSource* random, const std::function<void()>& locked) {
  absl::StatusOr<NvmeDevice::OpenResult> result =
      Open({options, store_uuid, Fingerprint(mac_key), engine, random, locked});
  if (result.ok()) return *std::move(result);
  NvmeDevice::OpenResult failed;
  failed.error = {.failure = FailureOf(result.status()), .status = result.status()};
  return failed;
}

}  // namespace kvkeep
