// Handles of device memory between processes. A handle names process and address, but does not
// distinguish allocations at that address. Its memfd is found by name among the descriptors of that
// process, so it is gone with the process or with cuMemFree.
//
// Rules, and where they are from (README.md):
// - cuIpcGetMemHandle takes the base of a cuMemAlloc. A pointer into it, or memory of cuMemMap:
//   1. [doc; the error was seen]
// - cuIpcOpenMemHandle takes only the flag LAZY_ENABLE_PEER_ACCESS. [doc] In the exporting
//   process, or one with an equal process id: 201. [seen]
// - A handle opened again in one context: the same address, and one more reference to close. An
//   equal handle that is still open gives the old mapping. [doc; the second follows from two
//   others]
// - cuMemFree before the importer closed: undefined behaviour. [doc] cuIpcCloseMemHandle and
//   cuMemUnmap under a copy: undefined behaviour. [seen; the second is assumed]
// - A handle of freed memory, or of a dead process, is refused (1). Opened memory stays while it
//   is open, even if its exporter was killed. [assumed]
// - There is no IPC with MIG. [NVIDIA's MIG guide; 801 is assumed]
#include <cuda.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "tests/fakes/cuda/memory.h"
#include "tests/fakes/cuda/state.h"

namespace kvkeep::fakecuda {
namespace {

constexpr char kMagic[8] = {'F', 'A', 'K', 'E', 'I', 'P', 'C', '1'};

struct Handle {
  char magic[8];
  uint64_t process;
  uint64_t base;
  uint64_t bytes;
  int device;
};
static_assert(sizeof(Handle) <= CU_IPC_HANDLE_SIZE);

UniqueFd OpenMemoryOf(const Handle& handle) {
  const std::string folder = "/proc/" + std::to_string(handle.process) + "/fd";
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (!HasName(entry.path(), MemoryName(handle.base))) continue;
    UniqueFd memory(open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    struct stat status = {};
    struct flock lock = {};
    lock.l_type = F_RDLCK;
    lock.l_whence = SEEK_SET;
    if (!memory.valid() || fstat(memory.get(), &status) != 0 ||
        static_cast<uint64_t>(status.st_size) != handle.bytes ||
        fcntl(memory.get(), F_OFD_SETLK, &lock) != 0) {
      return UniqueFd();
    }
    return memory;
  }
  return UniqueFd();
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  State& state = TheState();
  const Entry entry(&state, "cuIpcGetMemHandle", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (entry.settings().mig) return CUDA_ERROR_NOT_SUPPORTED;
  const std::shared_ptr<Range> range = FindRange(&state, address, 1);
  if (range == nullptr || range->base != address || range->kind != Range::Kind::kAllocated) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Handle handle = {
      .process = static_cast<uint64_t>(getpid()),
      .base = range->base,
      .bytes = range->bytes,
      .device = range->device};
  std::memcpy(handle.magic, kMagic, sizeof(kMagic));
  std::memset(out->reserved, 0, sizeof(out->reserved));
  std::memcpy(out->reserved, &handle, sizeof(handle));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle given, unsigned flags) {
  State& state = TheState();
  const Entry entry(&state, "cuIpcOpenMemHandle", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (entry.settings().mig) return CUDA_ERROR_NOT_SUPPORTED;
  if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Handle handle = {};
  std::memcpy(&handle, given.reserved, sizeof(handle));
  if (std::memcmp(handle.magic, kMagic, sizeof(kMagic)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handle.process == static_cast<uint64_t>(getpid())) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string bytes(given.reserved, sizeof(given.reserved));
  for (const auto& [base, range] : state.ranges) {
    if (range->handle != bytes || range->device != entry.device()) continue;
    ++range->opens;
    *address = base;
    return CUDA_SUCCESS;
  }
  auto range = std::make_shared<Range>();
  range->kind = Range::Kind::kImported;
  range->memory = OpenMemoryOf(handle);
  if (!range->memory.valid()) return CUDA_ERROR_INVALID_VALUE;
  range->base = MapMemory(range->memory.get(), handle.bytes, 0);
  if (range->base == 0) return CUDA_ERROR_MAP_FAILED;
  range->bytes = handle.bytes;
  range->device = entry.device();
  range->memory_device = handle.device;
  range->handle = bytes;
  range->opens = 1;
  state.ranges[range->base] = range;
  *address = range->base;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
  State& state = TheState();
  const Entry entry(&state, "cuIpcCloseMemHandle", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Range> range = FindRange(&state, address, 1);
  if (range == nullptr || range->base != address || range->kind != Range::Kind::kImported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--range->opens > 0) return CUDA_SUCCESS;
  if (range->copies > 0) Violation("cuIpcCloseMemHandle of memory that a copy uses");
  while (range->copies > 0) state.changed.Wait(&state.mu);
  EndRange(&state, range);
  return CUDA_SUCCESS;
}

}  // extern "C"

}  // namespace kvkeep::fakecuda
