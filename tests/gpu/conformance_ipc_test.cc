// Behaviour of NVIDIA's driver between processes that kvkeep relies on. Each case states the rule;
// tests/fakes/cuda says where it is from.
#include <catch2/catch.hpp>
#include <filesystem>
#include <iterator>
#include <string>

#include "tests/gpu/exporter.h"
#include "tests/gpu/gpu_session.h"
#include "tests/gpu/pattern.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr size_t kSlack = 16;  // far below 10,000 of anything
constexpr unsigned kOpen = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

CUdeviceptr Open(const GpuSession& gpu, const CUipcMemHandle& handle) {
  CUdeviceptr address = 0;
  gpu.Require(gpu.driver().IpcOpenMemHandle(&address, handle, kOpen));
  return address;
}

absl::Status OpenStatus(const GpuSession& gpu, const CUipcMemHandle& handle,
                        unsigned flags = kOpen) {
  CUdeviceptr address = 0;
  return gpu.driver().IpcOpenMemHandle(&address, handle, flags);
}

TEST_CASE("memory of another process is read and written through its handle") {
  Exporter exporter;
  GpuSession gpu;
  const CUdeviceptr memory = Open(gpu, exporter.Alloc(4 * kMiB, 1));
  CHECK(gpu.Read(memory, 4 * kMiB) == Pattern(4 * kMiB, 1));
  gpu.Write(memory, Pattern(4 * kMiB, 2));
  CHECK(exporter.Holds(2));
  gpu.Require(gpu.driver().IpcCloseMemHandle(memory));
  CHECK(exporter.Holds(2));
}

TEST_CASE("an opened handle gives the whole allocation: its base and its size") {
  Exporter exporter;
  GpuSession gpu;
  const CUdeviceptr memory = Open(gpu, exporter.Alloc(6 * kMiB, 1));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  gpu.Require(gpu.driver().MemGetAddressRange(&base, &bytes, memory + 5 * kMiB));
  CHECK(base == memory);
  CHECK(bytes == 6 * kMiB);
  gpu.Require(gpu.driver().IpcCloseMemHandle(memory));
}

TEST_CASE("the process that exported a handle cannot open it: 201") {
  GpuSession gpu;
  const CUdeviceptr memory = gpu.Alloc(2 * kMiB);
  CUipcMemHandle handle = {};
  gpu.Require(gpu.driver().IpcGetMemHandle(&handle, memory));
  CHECK(CudaErrorOf(OpenStatus(gpu, handle)) == CUDA_ERROR_INVALID_CONTEXT);
  gpu.Require(gpu.driver().MemFree(memory));
}

TEST_CASE("there is no handle of memory that cuMemCreate made") {
  GpuSession gpu;
  const CUmemAllocationProp properties = gpu.Properties();
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  CUipcMemHandle handle = {};
  gpu.Require(gpu.driver().MemCreate(&memory, 2 * kMiB, &properties, 0ull));
  gpu.Require(gpu.driver().MemAddressReserve(&address, 2 * kMiB, size_t{0}, 0ull, 0ull));
  gpu.Require(gpu.driver().MemMap(address, 2 * kMiB, size_t{0}, memory, 0ull));
  CHECK(CudaErrorOf(gpu.driver().IpcGetMemHandle(&handle, address)) == CUDA_ERROR_INVALID_VALUE);
  gpu.Require(gpu.driver().MemUnmap(address, 2 * kMiB));
  gpu.Require(gpu.driver().MemAddressFree(address, 2 * kMiB));
  gpu.Require(gpu.driver().MemRelease(memory));
}

TEST_CASE("what is no handle is refused, and so are other flags") {
  Exporter exporter;
  GpuSession gpu;
  CHECK_FALSE(OpenStatus(gpu, CUipcMemHandle{}).ok());
  CUipcMemHandle handle = exporter.Alloc(2 * kMiB, 1);
  CHECK(CudaErrorOf(OpenStatus(gpu, handle, 0)) == CUDA_ERROR_INVALID_VALUE);
  gpu.Require(gpu.driver().IpcCloseMemHandle(Open(gpu, handle)));
}

TEST_CASE("a handle that is opened again has the same address, until it is closed as often") {
  Exporter exporter;
  GpuSession gpu;
  const CUipcMemHandle handle = exporter.Alloc(2 * kMiB, 1);
  const CUdeviceptr memory = Open(gpu, handle);
  CHECK(Open(gpu, handle) == memory);
  gpu.Require(gpu.driver().IpcCloseMemHandle(memory));
  CHECK(gpu.Read(memory, kMiB) == Pattern(kMiB, 1));
  gpu.Require(gpu.driver().IpcCloseMemHandle(memory));
  CHECK_FALSE(gpu.driver().IpcCloseMemHandle(memory).ok());
}

TEST_CASE("an imported address is no allocation to free") {
  Exporter exporter;
  GpuSession gpu;
  const CUdeviceptr memory = Open(gpu, exporter.Alloc(2 * kMiB, 1));
  CHECK_FALSE(gpu.driver().MemFree(memory).ok());
  CHECK(exporter.Holds(1));
  gpu.Require(gpu.driver().IpcCloseMemHandle(memory));
}

TEST_CASE("a handle of freed memory is refused") {
  Exporter exporter;
  GpuSession gpu;
  const CUipcMemHandle handle = exporter.Alloc(2 * kMiB, 1);
  exporter.Free();
  CHECK_FALSE(OpenStatus(gpu, handle).ok());
}

TEST_CASE("a handle whose exporter is dead is refused") {
  Exporter exporter;
  GpuSession gpu;
  const CUipcMemHandle handle = exporter.Alloc(2 * kMiB, 1);
  exporter.Kill();
  CHECK_FALSE(OpenStatus(gpu, handle).ok());
}

TEST_CASE("opened memory stays when its exporter is killed") {
  Exporter exporter;
  GpuSession gpu;
  const CUdeviceptr memory = Open(gpu, exporter.Alloc(2 * kMiB, 1));
  exporter.Kill();
  CHECK(gpu.Read(memory, 2 * kMiB) == Pattern(2 * kMiB, 1));
  gpu.Require(gpu.driver().IpcCloseMemHandle(memory));
}

TEST_CASE("handles of two processes do not mix") {
  Exporter one, two;
  GpuSession gpu;
  const CUdeviceptr first = Open(gpu, one.Alloc(2 * kMiB, 1));
  const CUdeviceptr second = Open(gpu, two.Alloc(2 * kMiB, 2));
  CHECK(first != second);
  CHECK(gpu.Read(first, 2 * kMiB) == Pattern(2 * kMiB, 1));
  CHECK(gpu.Read(second, 2 * kMiB) == Pattern(2 * kMiB, 2));
  gpu.Require(gpu.driver().IpcCloseMemHandle(first));
  gpu.Require(gpu.driver().IpcCloseMemHandle(second));
}

size_t Entries(const std::string& folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

TEST_CASE("nothing is left over of 10,000 times that memory was opened and closed") {
  Exporter exporter;
  GpuSession gpu;
  const CUipcMemHandle handle = exporter.Alloc(2 * kMiB, 1);
  const auto once = [&] { gpu.Require(gpu.driver().IpcCloseMemHandle(Open(gpu, handle))); };
  const auto free_bytes = [&] {
    size_t free = 0, total = 0;
    gpu.Require(gpu.driver().MemGetInfo(&free, &total));
    return free;
  };
  once();  // memory of the first one may stay
  const size_t descriptors = Entries("/proc/self/fd"), mappings = Entries("/proc/self/map_files");
  const size_t before = free_bytes();
  for (int i = 0; i < 10'000; ++i) once();
  CHECK(Entries("/proc/self/fd") <= descriptors + kSlack);
  CHECK(Entries("/proc/self/map_files") <= mappings + kSlack);
  CHECK(free_bytes() + kSlack * kMiB >= before);
}

TEST_CASE("memory of another process is read and written through its descriptor") {
  Exporter exporter;
  GpuSession gpu;
  UniqueFd descriptor = exporter.AllocVmm(4 * kMiB, 1);
  const size_t bytes = 4 * kMiB;
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  gpu.Require(gpu.driver().MemImportFromShareableHandle(
      &memory, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  descriptor.Reset();  // the memory needs it no more
  gpu.Require(gpu.driver().MemAddressReserve(&address, bytes, size_t{0}, 0ull, 0ull));
  gpu.Require(gpu.driver().MemMap(address, bytes, size_t{0}, memory, 0ull));
  const CUmemAccessDesc access = {
      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.device()},
      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  gpu.Require(gpu.driver().MemSetAccess(address, bytes, &access, size_t{1}));
  gpu.Require(gpu.driver().MemRelease(memory));  // nor the handle: the mapping keeps it
  CHECK(gpu.Read(address, bytes) == Pattern(bytes, 1));
  gpu.Write(address, Pattern(bytes, 2));
  CHECK(exporter.Holds(2));
  // The handle of mapped memory can be retained from its address; that of cuMemAlloc's cannot.
  const auto retain = [&](CUdeviceptr of) {
    return gpu.driver().MemRetainAllocationHandle(&memory, reinterpret_cast<void*>(of));
  };
  gpu.Require(retain(address + kMiB));
  gpu.Require(gpu.driver().MemRelease(memory));
  const CUdeviceptr allocated = gpu.Alloc(kMiB);
  CHECK_FALSE(retain(allocated).ok());
  gpu.Require(gpu.driver().MemFree(allocated));
  gpu.Require(gpu.driver().MemUnmap(address, bytes));
  gpu.Require(gpu.driver().MemAddressFree(address, bytes));
}

TEST_CASE("a descriptor of something else is no memory") {
  GpuSession gpu;
  CUmemGenericAllocationHandle memory = 0;
  CHECK_FALSE(gpu.driver()
                  .MemImportFromShareableHandle(&memory, reinterpret_cast<void*>(intptr_t{0}),
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                  .ok());
}

}  // namespace
}  // namespace kvkeep
