// GpuDriver: NVIDIA's driver library, opened at run time. The only place that knows how to find it.
//
// kvkeepd is one binary for machines with and without a GPU: nothing of CUDA is linked. Load opens
// libcuda.so.1, asks its cuGetProcAddress for every function of driver_functions.h and calls
// cuInit; when any of that fails the Status says why in words for an operator. The library is never
// closed.
//
//   KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<GpuDriver> driver, GpuDriver::Load({}));
//   KVKEEP_RETURN_IF_ERROR(driver->MemAlloc(&address, bytes));   // "cuMemAlloc: CUDA_ERROR_..."
//
// Every driver function is a method of that name without its "cu", with the same arguments, that
// returns an absl::Status (cuda_status.h); raw() has the bare functions, for answers that are no
// errors (CUDA_ERROR_NOT_READY). Thread-safe, as the driver is; the current context is a thread's.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>
#include <memory>
#include <string>

#include "gpu/cuda_status.h"
#include "gpu/driver_functions.h"

namespace kvkeep {

// Below 12.0 there is no cuGetProcAddress that tells what it did not find.
inline constexpr int kOldestCudaVersion = 12000;
// The newest calling convention that kvkeep knows; newer drivers still have it.
inline constexpr int kNewestCudaVersion = 13000;

// cuMemcpyBatchAsync: one name, two sets of arguments.
enum class BatchCopyAbi {
  kNone,    // drivers before 12.8
  kCuda12,  // 12.8 and later: tells which copy was refused
  kCuda13,  // 13.0 and later
};

// Copies of one batch, in no order among them. Row i: sizes[i] bytes from sources[i].
struct BatchCopy {
  CUdeviceptr* destinations = nullptr;
  CUdeviceptr* sources = nullptr;
  size_t* sizes = nullptr;
  size_t count = 0;
};

struct GpuFunctions {
#define KVKEEP_GPU_MEMBER(name, version) PFN_cu##name##_v##version name = nullptr;
  KVKEEP_GPU_FUNCTIONS(KVKEEP_GPU_MEMBER)
#undef KVKEEP_GPU_MEMBER
  // Functions that not every driver has: null if missing.
  PFN_cuMemcpyBatchAsync_v12080 MemcpyBatchAsync12 = nullptr;
  PFN_cuMemcpyBatchAsync_v13000 MemcpyBatchAsync13 = nullptr;
  PFN_cuDeviceGetUuid_v9020 DeviceGetParentUuid = nullptr;  // of the whole GPU, in MIG mode too
};

class GpuDriver {
 public:
  struct Options {
    std::string library = "libcuda.so.1";  // a name that the loader looks up, or a path
    // The newest convention to ask for. Lower only to test the older ones on a new driver.
    int cuda_version = kNewestCudaVersion;

    absl::Status Validate() const;
  };

  // NotFound: no driver, or no device. FailedPrecondition: the driver is too old, a function is
  // missing, or it is the toolkit's stub. Else what cuInit said.
  static absl::StatusOr<std::unique_ptr<GpuDriver>> Load(const Options& options);

  // The driver's version, as 1000 * major + 10 * minor.
  int version() const { return version_; }
  BatchCopyAbi batch_copy_abi() const { return batch_copy_abi_; }
  const GpuFunctions& raw() const { return functions_; }

  absl::Status ToStatus(CUresult result, absl::string_view call) const;

#define KVKEEP_GPU_METHOD(name, version)                   \
  template <typename... Args>                              \
  absl::Status name(Args... args) const {                  \
    return ToStatus(functions_.name(args...), "cu" #name); \
  }
  KVKEEP_GPU_FUNCTIONS(KVKEEP_GPU_METHOD)
#undef KVKEEP_GPU_METHOD

  // By whichever convention there is. Sources are read in stream order. `stream` is not the null
  // stream.
  // REQUIRES: batch_copy_abi() is not kNone.
  absl::Status MemcpyBatch(const BatchCopy& batch, CUstream stream) const;

 private:
  GpuDriver() = default;
  absl::Status Open(const Options& options);
  absl::Status Resolve(const Options& options);
  // Null, with a Status, when this driver has no such function in that version or before.
  absl::StatusOr<void*> Find(const char* name, int version) const;

  PFN_cuGetProcAddress_v12000 get_proc_address_ = nullptr;
  GpuFunctions functions_;
  int version_ = 0;
  BatchCopyAbi batch_copy_abi_ = BatchCopyAbi::kNone;
};

}  // namespace kvkeep
