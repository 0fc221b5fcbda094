#include "server/gpu/imported_memory.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

absl::Status Explained(const absl::Status& status, absl::string_view what) {
  return absl::Status(status.code(), absl::StrCat(status.message(), "; ", what));
}

// Checks that memory is on `device`: a handle may be of any GPU that this process sees.
absl::Status CheckIsOf(const GpuDriver& driver, CUdevice device, CUdeviceptr base) {
  int ordinal = 0;
  CUdevice found = 0;
  KVKEEP_RETURN_IF_ERROR(driver.PointerGetAttribute(static_cast<void*>(&ordinal),
                                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, base));
  KVKEEP_RETURN_IF_ERROR(driver.DeviceGet(&found, ordinal));
  if (found == device) return absl::OkStatus();
  return absl::InvalidArgumentError("the memory is of another GPU than the registration says");
}

absl::StatusOr<ImportedMemory> OpenHandle(const GpuDriver& driver, CUdevice device,
                                          const GpuMemory& memory) {
  CUipcMemHandle handle = {};
  static_assert(sizeof(handle.reserved) == GpuMemory::kHandleBytes);
  std::memcpy(handle.reserved, memory.handle.data(), memory.handle.size());
  ImportedMemory opened;
  const absl::Status status =
      driver.IpcOpenMemHandle(&opened.base, handle, unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS});
  if (CudaErrorOf(status) == CUDA_ERROR_INVALID_CONTEXT) {
    return Explained(status,
                     "the worker's process id equals the daemon's, or its PID namespace is not "
                     "visible to the driver");
  }
  if (CudaErrorOf(status) == CUDA_ERROR_INVALID_VALUE) {
    return Explained(status,
                     "the worker has freed this memory, or is gone, or the handle is not one of "
                     "cuIpcGetMemHandle");
  }
  KVKEEP_RETURN_IF_ERROR(status);
  absl::Cleanup close_again = [&] { (void)driver.IpcCloseMemHandle(opened.base); };
  KVKEEP_RETURN_IF_ERROR(CheckIsOf(driver, device, opened.base));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  KVKEEP_RETURN_IF_ERROR(driver.MemGetAddressRange(&base, &bytes, opened.base));
  if (base != opened.base || bytes < memory.allocation_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("allocation_bytes is ", memory.allocation_bytes,
                                                   ", the handle's memory has ", bytes));
  }
  std::move(close_again).Cancel();
  opened.bytes = bytes;
  return opened;
}

absl::StatusOr<ImportedMemory> MapDescriptor(const GpuDriver& driver, CUdevice device,
                                             const GpuMemory& memory) {
  const size_t bytes = memory.allocation_bytes;
  CUmemGenericAllocationHandle handle = 0;
  const absl::Status imported = driver.MemImportFromShareableHandle(
      &handle, reinterpret_cast<void*>(static_cast<intptr_t>(memory.descriptor.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (!imported.ok()) {
    return Explained(imported, "the descriptor is not one of cuMemExportToShareableHandle");
  }
  // The mapping keeps the memory; the handle is needed only to make it.
  const absl::Cleanup release = [&] { (void)driver.MemRelease(handle); };
  CUdeviceptr base = 0;
  KVKEEP_RETURN_IF_ERROR(driver.MemAddressReserve(&base, bytes, size_t{0}, 0ull, 0ull));
  absl::Cleanup free_addresses = [&] { (void)driver.MemAddressFree(base, bytes); };
  const absl::Status mapped = driver.MemMap(base, bytes, size_t{0}, handle, 0ull);
  if (!mapped.ok()) {
    return Explained(mapped, absl::StrCat("allocation_bytes is ", bytes,
                                          "; is it what "
                                          "cuMemCreate was asked for?"));
  }
  absl::Cleanup unmap = [&] { (void)driver.MemUnmap(base, bytes); };
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  KVKEEP_RETURN_IF_ERROR(driver.MemSetAccess(base, bytes, &access, size_t{1}));
  KVKEEP_RETURN_IF_ERROR(CheckIsOf(driver, device, base));
  std::move(unmap).Cancel();
  std::move(free_addresses).Cancel();
  return ImportedMemory{.kind = GpuMemory::Kind::kDescriptor, .base = base, .bytes = bytes};
}

}  // namespace

absl::Status CheckImportable(const GpuDriver& driver, CUdevice device, const GpuMemory& memory) {
  if (memory.kind == GpuMemory::Kind::kDescriptor) return absl::OkStatus();
  if (memory.process == getpid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker and daemon both have process id ", memory.process,
                     ": CUDA takes the worker's handle for the daemon's own. Run the daemon in "
                     "another PID namespace or under another number"));
  }
  KVKEEP_ASSIGN_OR_RETURN(const bool mig, IsMigInstance(driver, device));
  if (!mig) return absl::OkStatus();
  return absl::UnimplementedError(
      "the device is a MIG instance: CUDA has no handles between processes there");
}

absl::StatusOr<ImportedMemory> ImportMemory(const GpuDriver& driver, CUdevice device,
                                            const GpuMemory& memory) {
  KVKEEP_CHECK(memory.Validate().ok());
  KVKEEP_RETURN_IF_ERROR(CheckImportable(driver, device, memory));
  if (memory.kind == GpuMemory::Kind::kDescriptor) return MapDescriptor(driver, device, memory);
  return OpenHandle(driver, device, memory);
}

absl::Status CloseMemory(const GpuDriver& driver, const ImportedMemory& memory) {
  if (memory.kind == GpuMemory::Kind::kIpcHandle) return driver.IpcCloseMemHandle(memory.base);
  const size_t bytes = memory.bytes;
  KVKEEP_RETURN_IF_ERROR(driver.MemUnmap(memory.base, bytes));
  return driver.MemAddressFree(memory.base, bytes);
}

absl::StatusOr<bool> IsMigInstance(const GpuDriver& driver, CUdevice device) {
  if (driver.raw().DeviceGetParentUuid == nullptr) return false;
  CUuuid own = {}, whole = {};
  KVKEEP_RETURN_IF_ERROR(driver.DeviceGetUuid(&own, device));
  KVKEEP_RETURN_IF_ERROR(driver.ToStatus(driver.raw().DeviceGetParentUuid(&whole, device),
                                         "cuDeviceGetUuid of CUDA 9.2"));
  return std::memcmp(own.bytes, whole.bytes, sizeof(own.bytes)) != 0;
}

}  // namespace kvkeep
