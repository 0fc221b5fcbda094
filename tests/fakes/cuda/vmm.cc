// Virtual memory management of the fake driver: memory whose handle is a file descriptor.
//
// Rules, and where they are from (README.md):
// - Sizes of cuMemCreate, cuMemAddressReserve and cuMemMap come in steps of the granularity,
//   with offset 0. [doc]
// - Mapped memory is usable only after cuMemSetAccess. [doc]
// - cuMemRetainAllocationHandle of an address without cuMemMap: INVALID_VALUE. [doc]
// - cuMemCreate takes a handle type that the device lacks, and its export fails. [seen for
//   FABRIC; 801 is assumed]
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/fakes/cuda/memory.h"
#include "tests/fakes/cuda/state.h"

namespace kvkeep::fakecuda {
namespace {

const char kName[] = "fakecuda-vmm";

std::shared_ptr<VmmMemory> FindMemory(State* state, CUmemGenericAllocationHandle handle)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  const auto found = state->vmm.find(handle);
  return found == state->vmm.end() ? nullptr : found->second;
}

CUmemGenericAllocationHandle AddMemory(State* state, VmmMemory memory)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  const uint64_t handle = state->next_vmm++;
  state->vmm[handle] = std::make_shared<VmmMemory>(std::move(memory));
  return handle;
}

// Returns the reserved range that is exactly this one; mapping parts of one is not faked.
std::shared_ptr<Range> FindReserved(State* state, CUdeviceptr address, size_t bytes)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  std::shared_ptr<Range> range = FindRange(state, address, bytes);
  const bool exact = range != nullptr && range->kind == Range::Kind::kReserved &&
                     range->base == address && range->bytes == bytes;
  return exact ? range : nullptr;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                               CUmemAllocationGranularity_flags) {
  State& state = TheState();
  const Entry entry(&state, "cuMemGetAllocationGranularity", Needs::kInit);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                             const CUmemAllocationProp* prop, unsigned long long flags) {
  State& state = TheState();
  const Entry entry(&state, "cuMemCreate", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0 || prop == nullptr ||
      prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Any type of handle is taken, even one that the device lacks; its export fails.
  VmmMemory memory = {.memory = MakeMemory(kName, bytes),
                      .bytes = bytes,
                      .device = prop->location.id,
                      .handle_types = static_cast<unsigned>(prop->requestedHandleTypes)};
  if (!memory.memory.valid()) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = AddMemory(&state, std::move(memory));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  State& state = TheState();
  const Entry entry(&state, "cuMemRelease", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  return state.vmm.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  State& state = TheState();
  const Entry entry(&state, "cuMemRetainAllocationHandle", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Range> range = FindRange(&state, reinterpret_cast<uint64_t>(address), 1);
  if (handle == nullptr || range == nullptr || range->vmm == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = state.next_vmm++;  // the same memory, to be released once more
  state.vmm[*handle] = range->vmm;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type,
                                              unsigned long long flags) {
  State& state = TheState();
  const Entry entry(&state, "cuMemExportToShareableHandle", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<VmmMemory> memory = FindMemory(&state, handle);
  if (memory == nullptr || flags != 0 || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((memory->handle_types & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  *static_cast<int*>(out) = fcntl(memory->memory.get(), F_DUPFD_CLOEXEC, 0);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os,
                                                CUmemAllocationHandleType type) {
  State& state = TheState();
  const Entry entry(&state, "cuMemImportFromShareableHandle", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const int given = static_cast<int>(reinterpret_cast<intptr_t>(os));
  struct stat status = {};
  if (!HasName("/proc/self/fd/" + std::to_string(given), kName) || fstat(given, &status) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  VmmMemory memory = {.memory = UniqueFd(fcntl(given, F_DUPFD_CLOEXEC, 0)),
                      .bytes = static_cast<uint64_t>(status.st_size),
                      .device = entry.device()};
  *handle = AddMemory(&state, std::move(memory));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment,
                                     CUdeviceptr, unsigned long long flags) {
  State& state = TheState();
  const Entry entry(&state, "cuMemAddressReserve", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (address == nullptr || bytes == 0 || bytes % kGranularity != 0 || flags != 0 ||
      (alignment != 0 && kGranularity % alignment != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto range = std::make_shared<Range>();
  range->kind = Range::Kind::kReserved;
  range->base = ReserveAddresses(bytes);
  if (range->base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  range->bytes = bytes;
  range->device = entry.device();
  state.ranges[range->base] = range;
  *address = range->base;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  State& state = TheState();
  const Entry entry(&state, "cuMemAddressFree", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Range> range = FindReserved(&state, address, bytes);
  if (range == nullptr || range->mapped) return CUDA_ERROR_INVALID_VALUE;
  EndRange(&state, range);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
  State& state = TheState();
  const Entry entry(&state, "cuMemMap", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Range> range = FindReserved(&state, address, bytes);
  const std::shared_ptr<VmmMemory> memory = FindMemory(&state, handle);
  if (range == nullptr || range->mapped || memory == nullptr || memory->bytes != bytes ||
      offset != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (MapMemory(memory->memory.get(), bytes, address) == 0) return CUDA_ERROR_MAP_FAILED;
  range->mapped = true;
  range->vmm = memory;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                                size_t count) {
  State& state = TheState();
  const Entry entry(&state, "cuMemSetAccess", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Range> range = FindReserved(&state, address, bytes);
  if (range == nullptr || !range->mapped || access == nullptr || count != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  range->accessible = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
  State& state = TheState();
  const Entry entry(&state, "cuMemUnmap", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Range> range = FindReserved(&state, address, bytes);
  if (range == nullptr || !range->mapped) return CUDA_ERROR_INVALID_VALUE;
  if (range->copies > 0) Violation("cuMemUnmap of memory that a copy uses");
  while (range->copies > 0) state.changed.Wait(&state.mu);
  BlankAddresses(address, bytes);
  range->mapped = range->accessible = false;
  range->vmm = nullptr;
  return CUDA_SUCCESS;
}

}  // extern "C"

}  // namespace kvkeep::fakecuda
