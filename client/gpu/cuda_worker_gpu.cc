// WorkerGpu over NVIDIA's driver.
#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include <cstring>
#include <utility>

#include "client/gpu/worker_gpu.h"
#include "gpu/arena_pinner.h"
#include "gpu/driver.h"
#include "tiers/base/executor.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

class CudaPin final : public PinnedArena::Pin {
 public:
  CudaPin(std::shared_ptr<const GpuDriver> driver, CUdevice device,
          std::vector<std::span<std::byte>> segments)
      : driver_(std::move(driver)),
        pinner_(driver_.get(), device, {.segments = std::move(segments), .read_only = true},
                &executor_) {}

  PinnedArena::Stats stats() const override {
    const ArenaPinner::Stats stats = pinner_.stats();
    return {.pinned_bytes = stats.pinned_bytes,
            .refused_bytes = stats.refused_bytes,
            .first_refusal = stats.first_refusal,
            .finished = stats.finished};
  }
  bool Covers(std::span<const std::byte> run) const override { return pinner_.Covers(run); }
  bool AwaitFinished(Deadline timeout) const override { return pinner_.AwaitFinished(timeout); }

 private:
  const std::shared_ptr<const GpuDriver> driver_;
  ThreadPool executor_{"kvkeep-pin", 1};
  ArenaPinner pinner_;
};

class CudaWorkerGpu final : public WorkerGpu {
 public:
  explicit CudaWorkerGpu(std::shared_ptr<const GpuDriver> driver) : driver_(std::move(driver)) {}

  absl::StatusOr<GpuMemory> Export(uint64_t address, uint64_t bytes) override {
    GpuMemory memory;
    CUdeviceptr base = 0;
    size_t allocation = 0;
    KVKEEP_RETURN_IF_ERROR(
        driver_->MemGetAddressRange(&base, &allocation, static_cast<CUdeviceptr>(address)));
    memory.allocation_bytes = allocation;
    memory.offset = address - base;
    memory.bytes = bytes;
    KVKEEP_RETURN_IF_ERROR(memory.Validate());
    KVKEEP_ASSIGN_OR_RETURN(memory.gpu_uuid, UuidOf(address));
    CUipcMemHandle handle = {};
    const absl::Status exported = driver_->IpcGetMemHandle(&handle, base);
    if (exported.ok()) {
      static_assert(sizeof(handle.reserved) == sizeof(memory.handle));
      std::memcpy(memory.handle.data(), handle.reserved, memory.handle.size());
      return memory;
    }
    if (!absl::IsInvalidArgument(exported)) return exported;
    return ExportMapped(address, std::move(memory), exported);
  }

  absl::StatusOr<std::unique_ptr<PinnedArena::Pin>> PinReadOnly(
      int device, std::vector<std::span<std::byte>> segments) override {
    CUdevice found = 0;
    int possible = 0;
    KVKEEP_RETURN_IF_ERROR(driver_->DeviceGet(&found, device));
    KVKEEP_RETURN_IF_ERROR(driver_->DeviceGetAttribute(
        &possible, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, found));
    if (possible == 0) {
      return absl::UnimplementedError(
          absl::StrCat("GPU ", device,
                       " cannot register memory that is mapped read-only, as the arena is here: "
                       "copies from it are those of pageable memory"));
    }
    return std::make_unique<CudaPin>(driver_, found, std::move(segments));
  }

 private:
  absl::StatusOr<std::array<uint8_t, 16>> UuidOf(uint64_t address) const {
    int ordinal = 0;
    CUdevice device = 0;
    CUuuid uuid = {};
    KVKEEP_RETURN_IF_ERROR(driver_->PointerGetAttribute(static_cast<void*>(&ordinal),
                                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                        static_cast<CUdeviceptr>(address)));
    KVKEEP_RETURN_IF_ERROR(driver_->DeviceGet(&device, ordinal));
    KVKEEP_RETURN_IF_ERROR(driver_->DeviceGetUuid(&uuid, device));
    std::array<uint8_t, 16> bytes;
    static_assert(sizeof(uuid.bytes) == sizeof(bytes));
    std::memcpy(bytes.data(), uuid.bytes, bytes.size());
    return bytes;
  }

  // Memory of cuMemCreate has no legacy handle, and has a file descriptor if its owner asked for
  // it.
  absl::StatusOr<GpuMemory> ExportMapped(uint64_t address, GpuMemory memory,
                                         const absl::Status& no_handle) const {
    CUmemGenericAllocationHandle mapped = 0;
    if (!driver_->MemRetainAllocationHandle(&mapped, reinterpret_cast<void*>(address)).ok()) {
      return no_handle;
    }
    const absl::Cleanup release = [this, mapped] { (void)driver_->MemRelease(mapped); };
    int descriptor = -1;
    const absl::Status exported = driver_->MemExportToShareableHandle(
        static_cast<void*>(&descriptor), mapped, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
    if (!exported.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("memory of cuMemCreate that was not made to be shared by a file "
                       "descriptor: ",
                       exported.message()));
    }
    memory.kind = GpuMemory::Kind::kDescriptor;
    memory.descriptor = UniqueFd(descriptor);
    return memory;
  }

  const std::shared_ptr<const GpuDriver> driver_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<WorkerGpu>> WorkerGpu::Load(const std::string& library) {
  KVKEEP_ASSIGN_OR_RETURN(std::shared_ptr<const GpuDriver> driver,
                          GpuDriver::Load({.library = library}));
  return std::make_shared<CudaWorkerGpu>(std::move(driver));
}

}  // namespace kvkeep::client
