// Allocations, and host memory that is registered.
//
// Rules, and where they are from (README.md):
// - cuMemFree waits for copies in that memory. [seen] It refuses an imported pointer (1).
//   [assumed]
// - Memory at the address of freed memory may have an equal handle; here it always has. [seen;
//   the documentation says unique]
// - cuMemHostRegister of memory that is registered, even in part: ALREADY_REGISTERED (712).
//   [doc]
// - Read-only mapped memory takes the flag READ_ONLY, if the device has the attribute. Else
//   NOT_SUPPORTED [doc] or INVALID_VALUE [assumed].
// - cuMemHostUnregister within registered memory: INVALID_VALUE (1); elsewhere: NOT_REGISTERED
//   (713). [seen]
// - What was registered in a context goes with it. [assumed]
// - cuPointerGetAttribute of an address that is no device's: INVALID_VALUE. [doc]
// - cuMemGetInfo counts a device's whole use [doc]; here this process's cuMemAlloc alone.
#include "tests/fakes/cuda/memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdio>
#include <fstream>
#include <utility>
#include <vector>

namespace kvkeep::fakecuda {
namespace {

uint64_t PageRounded(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }

// Returns whether the page at `memory` is mapped, and not writable.
bool IsMappedReadOnly(const void* memory) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    unsigned long long begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%llx-%llx %4s", &begin, &end, access) == 3 && begin <= address &&
        address < end) {
      return access[1] != 'w';
    }
  }
  return false;
}

// Returns whether an importer still has this memory open: each holds a lock on its open file.
bool IsImported(int memory) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(memory, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

uint64_t MapMemory(int memory, uint64_t bytes, uint64_t at) {
  void* const mapped = mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | (at == 0 ? 0 : MAP_FIXED), memory, 0);
  return mapped == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(mapped);
}

uint64_t ReserveAddresses(uint64_t bytes) {
  const uint64_t whole = bytes + kGranularity;
  void* const reserved =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return 0;
  const uint64_t begin = reinterpret_cast<uint64_t>(reserved);
  const uint64_t aligned = (begin + kGranularity - 1) / kGranularity * kGranularity;
  if (aligned > begin) munmap(reserved, aligned - begin);
  const uint64_t end = aligned + PageRounded(bytes);
  munmap(reinterpret_cast<void*>(end), begin + whole - end);
  return aligned;
}

void BlankAddresses(uint64_t at, uint64_t bytes) {
  void* const blank = mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (blank == MAP_FAILED) Violation("the kernel gives no addresses back");
}

UniqueFd MakeMemory(const std::string& name, uint64_t bytes) {
  UniqueFd memory(memfd_create(name.c_str(), MFD_CLOEXEC));
  if (memory.valid() && ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) memory.Reset();
  return memory;
}

std::string MemoryName(uint64_t base) {
  char name[64];
  std::snprintf(name, sizeof(name), "fakecuda-%016llx", static_cast<unsigned long long>(base));
  return name;
}

bool HasName(const std::string& link, const std::string& name) {
  char target[128] = {};
  const ssize_t bytes = readlink(link.c_str(), target, sizeof(target) - 1);
  return bytes > 0 && std::string(target).rfind("/memfd:" + name, 0) == 0;
}

void EndRange(State* state, const std::shared_ptr<Range>& range) {
  switch (range->kind) {
    case Range::Kind::kAllocated:
      if (IsImported(range->memory.get())) {
        Violation("cuMemFree of memory that another process has open");
      }
      BlankAddresses(range->base, range->bytes);
      state->free_addresses[range->bytes].push_back(range->base);
      state->devices[range->device].allocated_bytes -= range->bytes;
      break;
    case Range::Kind::kImported:
    case Range::Kind::kReserved:
      munmap(reinterpret_cast<void*>(range->base), range->bytes);
      break;
  }
  state->ranges.erase(range->base);
}

void EndRanges(State* state, int device) {
  std::vector<std::shared_ptr<Range>> ending;
  for (const auto& [base, range] : state->ranges) {
    if (range->device == device) ending.push_back(range);
  }
  for (const std::shared_ptr<Range>& range : ending) EndRange(state, range);
  std::erase_if(state->registered,
                [device](const auto& each) { return each.second.device == device; });
}

extern "C" {

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  State& state = TheState();
  const Entry entry(&state, "cuMemAlloc", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Device& device = state.devices[entry.device()];
  if (bytes > entry.settings().memory_bytes - device.allocated_bytes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto range = std::make_shared<Range>();
  std::vector<uint64_t>& used_before = state.free_addresses[bytes];
  if (used_before.empty()) {
    range->base = ReserveAddresses(bytes);
  } else {
    range->base = used_before.back();
    used_before.pop_back();
  }
  if (range->base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  range->bytes = bytes;
  range->device = entry.device();
  range->memory = MakeMemory(MemoryName(range->base), bytes);
  if (MapMemory(range->memory.get(), bytes, range->base) == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  device.allocated_bytes += bytes;
  state.ranges[range->base] = range;
  *address = range->base;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
  State& state = TheState();
  const Entry entry(&state, "cuMemFree", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (address == 0) return CUDA_SUCCESS;
  const std::shared_ptr<Range> range = FindRange(&state, address, 1);
  if (range == nullptr || range->base != address || range->kind != Range::Kind::kAllocated) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  while (range->copies > 0) state.changed.Wait(&state.mu);
  EndRange(&state, range);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  State& state = TheState();
  const Entry entry(&state, "cuMemGetAddressRange", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Range> range = FindRange(&state, address, 1);
  if (range == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range->base;
  if (bytes != nullptr) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  State& state = TheState();
  const Entry entry(&state, "cuMemGetInfo", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *total = entry.settings().memory_bytes;
  *free = *total - std::min(*total, state.devices[entry.device()].allocated_bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                                       CUdeviceptr address) {
  State& state = TheState();
  const Entry entry(&state, "cuPointerGetAttribute", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Range> range = FindRange(&state, address, 1);
  if (value == nullptr || range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) return CUDA_ERROR_NOT_SUPPORTED;
  const bool imported = range->kind == Range::Kind::kImported;
  *static_cast<int*>(value) = imported ? range->memory_device : range->device;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  State& state = TheState();
  const Entry entry(&state, "cuMemHostRegister", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if (read_only && !entry.settings().read_only_register) return CUDA_ERROR_NOT_SUPPORTED;
  if (!read_only && IsMappedReadOnly(memory)) return CUDA_ERROR_INVALID_VALUE;
  const unsigned known =
      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  if (memory == nullptr || bytes == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto after = state.registered.lower_bound(base + bytes);
  if (after != state.registered.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.bytes > base)
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  state.registered[base] = {.bytes = bytes, .device = entry.device(), .read_only = read_only};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void* memory) {
  State& state = TheState();
  const Entry entry(&state, "cuMemHostUnregister", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const auto address = reinterpret_cast<uint64_t>(memory);
  if (state.registered.erase(address) == 1) return CUDA_SUCCESS;
  const auto after = state.registered.upper_bound(address);
  const bool within = after != state.registered.begin() &&
                      address - std::prev(after)->first < std::prev(after)->second.bytes;
  return within ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

}  // extern "C"

}  // namespace kvkeep::fakecuda
