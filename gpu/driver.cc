#include "gpu/driver.h"

#include <absl/strings/str_cat.h>
#include <dlfcn.h>

#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

absl::Status GpuDriver::Options::Validate() const {
  if (library.empty()) return absl::InvalidArgumentError("library is empty");
  if (cuda_version < kOldestCudaVersion || cuda_version > kNewestCudaVersion) {
    return absl::InvalidArgumentError(absl::StrCat("cuda_version is ", cuda_version,
                                                   ", allowed are ", kOldestCudaVersion, " to ",
                                                   kNewestCudaVersion));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GpuDriver>> GpuDriver::Load(const Options& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<GpuDriver> driver(new GpuDriver());
  KVKEEP_RETURN_IF_ERROR(driver->Open(options));
  KVKEEP_RETURN_IF_ERROR(driver->Resolve(options));
  KVKEEP_RETURN_IF_ERROR(driver->Init(0u));
  int devices = 0;
  KVKEEP_RETURN_IF_ERROR(driver->DeviceGetCount(&devices));
  if (devices == 0) {
    return absl::NotFoundError("the CUDA driver sees no device (CUDA_VISIBLE_DEVICES?)");
  }
  return driver;
}

absl::Status GpuDriver::Open(const Options& options) {
  void* library = dlopen(options.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("no NVIDIA driver here: ", dlerror()));
  }
  get_proc_address_ =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (get_proc_address_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.library, ": older than CUDA ", VersionText(kOldestCudaVersion),
                     " (it has no cuGetProcAddress_v2); install driver 525.60 or later"));
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> GpuDriver::Find(const char* name, int version) const {
  void* found = nullptr;
  CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result =
      get_proc_address_(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &why);
  if (result == CUDA_SUCCESS && why == CU_GET_PROC_ADDRESS_SUCCESS && found != nullptr) {
    return found;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the CUDA driver has no ", name, " of CUDA ", VersionText(version),
                   why == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT ? " (only a later one)" : "",
                   "; install driver 525.60 or later"));
}

absl::Status GpuDriver::Resolve(const Options& options) {
#define KVKEEP_GPU_RESOLVE(name, version)                                  \
  {                                                                        \
    KVKEEP_ASSIGN_OR_RETURN(void* const found, Find("cu" #name, version)); \
    functions_.name = reinterpret_cast<PFN_cu##name##_v##version>(found);  \
  }
  KVKEEP_GPU_FUNCTIONS(KVKEEP_GPU_RESOLVE)
#undef KVKEEP_GPU_RESOLVE
  KVKEEP_RETURN_IF_ERROR(DriverGetVersion(&version_));
  if (version_ < kOldestCudaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the CUDA driver is of CUDA ", VersionText(version_), ", needed is ",
                     VersionText(kOldestCudaVersion), ": install driver 525.60 or later"));
  }
  if (const absl::StatusOr<void*> found = Find("cuDeviceGetUuid", 9020); found.ok()) {
    functions_.DeviceGetParentUuid = reinterpret_cast<PFN_cuDeviceGetUuid_v9020>(*found);
  }
  const int newest = std::min(version_, options.cuda_version);
  const char* const batch = "cuMemcpyBatchAsync";
  if (newest >= 13000) {
    if (const absl::StatusOr<void*> found = Find(batch, 13000); found.ok()) {
      functions_.MemcpyBatchAsync13 = reinterpret_cast<PFN_cuMemcpyBatchAsync_v13000>(*found);
      batch_copy_abi_ = BatchCopyAbi::kCuda13;
    }
  } else if (newest >= 12080) {
    if (const absl::StatusOr<void*> found = Find(batch, 12080); found.ok()) {
      functions_.MemcpyBatchAsync12 = reinterpret_cast<PFN_cuMemcpyBatchAsync_v12080>(*found);
      batch_copy_abi_ = BatchCopyAbi::kCuda12;
    }
  }
  return absl::OkStatus();
}

absl::Status GpuDriver::ToStatus(CUresult result, absl::string_view call) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (functions_.GetErrorName == nullptr ||
      functions_.GetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    name = "unknown CUDA error";
  }
  if (functions_.GetErrorString == nullptr ||
      functions_.GetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) {
    text = "no description";
  }
  return CudaStatus(result, call, name, text);
}

absl::Status GpuDriver::MemcpyBatch(const BatchCopy& batch, CUstream stream) const {
  KVKEEP_CHECK(batch_copy_abi_ != BatchCopyAbi::kNone && stream != nullptr);
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t applies_from = 0;
  if (batch_copy_abi_ == BatchCopyAbi::kCuda13) {
    return ToStatus(
        functions_.MemcpyBatchAsync13(batch.destinations, batch.sources, batch.sizes, batch.count,
                                      &attributes, &applies_from, 1, stream),
        "cuMemcpyBatchAsync");
  }
  size_t refused = SIZE_MAX;
  const CUresult result =
      functions_.MemcpyBatchAsync12(batch.destinations, batch.sources, batch.sizes, batch.count,
                                    &attributes, &applies_from, 1, &refused, stream);
  return ToStatus(result, result != CUDA_SUCCESS && refused < batch.count
                              ? absl::StrCat("cuMemcpyBatchAsync, copy ", refused)
                              : "cuMemcpyBatchAsync");
}

}  // namespace kvkeep
