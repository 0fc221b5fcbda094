// The fake driver in cases that no real one can be asked for: failures, hangs and broken contexts
// on demand, undefined behaviour, and rules that a real driver follows only most of the time.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/gpu/exporter.h"
#include "tests/gpu/gpu_session.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr unsigned kOpen = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

bool SameBytes(const CUipcMemHandle& a, const CUipcMemHandle& b) {
  return std::memcmp(a.reserved, b.reserved, sizeof(a.reserved)) == 0;
}

TEST_CASE("new memory of the size of freed memory has a handle of the same bytes") {
  FakeCuda fake;
  Exporter exporter;
  GpuSession gpu;
  const CUipcMemHandle old_handle = exporter.Alloc(2 * kMiB, 1);
  exporter.Free();
  CHECK(SameBytes(old_handle, exporter.Alloc(2 * kMiB, 2)));
  // So a holder of the old one reads what is not meant for it.
  CUdeviceptr memory = 0;
  gpu.Require(gpu.driver().IpcOpenMemHandle(&memory, old_handle, kOpen));
  CHECK(gpu.Read(memory, 2 * kMiB) == Pattern(2 * kMiB, 2));
  gpu.Require(gpu.driver().IpcCloseMemHandle(memory));
}

TEST_CASE("a pointer into memory has no handle") {
  FakeCuda fake;
  GpuSession gpu;
  const CUdeviceptr memory = gpu.Alloc(4 * kMiB);
  CUipcMemHandle handle = {};
  CHECK(CudaErrorOf(gpu.driver().IpcGetMemHandle(&handle, memory + kMiB)) ==
        CUDA_ERROR_INVALID_VALUE);
  gpu.Require(gpu.driver().MemFree(memory));
}

TEST_CASE("a copy beyond the end of an allocation is refused") {
  FakeCuda fake;
  GpuSession gpu;
  const CUdeviceptr memory = gpu.Alloc(kMiB);
  std::vector<std::byte> host(kMiB);
  const absl::Status status = gpu.driver().MemcpyHtoDAsync(
      memory + 1, static_cast<const void*>(host.data()), kMiB, gpu.stream());
  CHECK(CudaErrorOf(status) == CUDA_ERROR_INVALID_VALUE);
  gpu.Require(gpu.driver().MemFree(memory));
}

TEST_CASE("mapped memory is not used before it is made accessible") {
  FakeCuda fake;
  GpuSession gpu;
  const CUmemAllocationProp properties = gpu.Properties();
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  gpu.Require(gpu.driver().MemCreate(&memory, 2 * kMiB, &properties, 0ull));
  gpu.Require(gpu.driver().MemAddressReserve(&address, 2 * kMiB, size_t{0}, 0ull, 0ull));
  gpu.Require(gpu.driver().MemMap(address, 2 * kMiB, size_t{0}, memory, 0ull));
  std::vector<std::byte> host(kMiB);
  CHECK(CudaErrorOf(gpu.driver().MemcpyDtoHAsync(static_cast<void*>(host.data()), address, kMiB,
                                                 gpu.stream())) == CUDA_ERROR_INVALID_VALUE);
  int descriptor = -1;
  CHECK_FALSE(gpu.driver()
                  .MemExportToShareableHandle(static_cast<void*>(&descriptor), memory,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull)
                  .ok());  // it was not requested
  gpu.Require(gpu.driver().MemUnmap(address, 2 * kMiB));
  gpu.Require(gpu.driver().MemAddressFree(address, 2 * kMiB));
  gpu.Require(gpu.driver().MemRelease(memory));
}

TEST_CASE("a MIG instance has a UUID of its own and no handles between processes") {
  FakeCuda fake;
  fake.Set("mig 1");
  GpuSession gpu;
  CUuuid instance = {}, whole = {};
  gpu.Require(gpu.driver().DeviceGetUuid(&instance, gpu.device()));
  REQUIRE(gpu.driver().raw().DeviceGetParentUuid(&whole, gpu.device()) == CUDA_SUCCESS);
  CHECK(std::memcmp(instance.bytes, whole.bytes, sizeof(whole.bytes)) != 0);
  const CUdeviceptr memory = gpu.Alloc(2 * kMiB);
  CUipcMemHandle handle = {};
  CHECK(CudaErrorOf(gpu.driver().IpcGetMemHandle(&handle, memory)) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(CudaErrorOf(gpu.driver().IpcOpenMemHandle(static_cast<CUdeviceptr*>(nullptr), handle,
                                                  kOpen)) == CUDA_ERROR_NOT_SUPPORTED);
  gpu.Require(gpu.driver().MemFree(memory));
}

TEST_CASE("a call fails when it is told to: after so many good ones, so many times") {
  FakeCuda fake;
  GpuSession gpu;
  fake.Set("fail cuMemAlloc 2 1 2");
  std::vector<bool> worked;
  for (int i = 0; i < 5; ++i) {
    CUdeviceptr memory = 0;
    worked.push_back(gpu.driver().MemAlloc(&memory, kMiB).ok());
    if (worked.back()) gpu.Require(gpu.driver().MemFree(memory));
  }
  CHECK(worked == std::vector<bool>{true, false, false, true, true});
}

TEST_CASE("a stream that hangs does nothing more, until the context is reset") {
  FakeCuda fake;
  GpuSession gpu;
  const CUdeviceptr memory = gpu.Alloc(kMiB);
  std::vector<std::byte> host = Pattern(kMiB, 1);
  void* const bare = host.data();
  gpu.Require(gpu.driver().MemHostRegister(bare, kMiB, 0u));
  CUevent event = nullptr;
  gpu.Require(gpu.driver().EventCreate(&event, unsigned{CU_EVENT_DISABLE_TIMING}));
  fake.Set("hang stream");
  gpu.Require(gpu.driver().MemcpyHtoDAsync(memory, static_cast<const void*>(host.data()), kMiB,
                                           gpu.stream()));
  gpu.Require(gpu.driver().EventRecord(event, gpu.stream()));
  CHECK(gpu.driver().raw().EventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK(gpu.driver().raw().StreamQuery(gpu.stream()) == CUDA_ERROR_NOT_READY);
  gpu.ResetContext();
  CHECK(gpu.driver().raw().EventQuery(event) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_CASE("a stream that hung goes on when it is told to") {
  FakeCuda fake;
  GpuSession gpu;
  CUevent event = nullptr;
  gpu.Require(gpu.driver().EventCreate(&event, unsigned{CU_EVENT_DISABLE_TIMING}));
  fake.Set("hang stream");
  gpu.Require(gpu.driver().EventRecord(event, gpu.stream()));
  CHECK(gpu.driver().raw().EventQuery(event) == CUDA_ERROR_NOT_READY);
  fake.Set("");
  gpu.Require(gpu.driver().EventSynchronize(event));
  gpu.Require(gpu.driver().EventDestroy(event));
}

TEST_CASE("a broken context stays broken, whatever is called in it, until it is reset") {
  FakeCuda fake;
  GpuSession gpu;
  fake.Set("sticky 700");
  CUdeviceptr memory = 0;
  CHECK(CudaErrorOf(gpu.driver().MemAlloc(&memory, kMiB)) == CUDA_ERROR_ILLEGAL_ADDRESS);
  fake.Set("");
  CHECK(CudaErrorOf(gpu.driver().StreamSynchronize(gpu.stream())) == CUDA_ERROR_ILLEGAL_ADDRESS);
  gpu.ResetContext();
  CUcontext context = nullptr;
  gpu.Require(gpu.driver().DevicePrimaryCtxRetain(&context, gpu.device()));
  gpu.Require(gpu.driver().CtxSetCurrent(context));
  gpu.Require(gpu.driver().MemFree(gpu.Alloc(kMiB)));
  gpu.Require(gpu.driver().DevicePrimaryCtxRelease(gpu.device()));
}

TEST_CASE("the refused row of a batch is told by the convention of CUDA 12") {
  FakeCuda fake;
  fake.Set("version 12080");
  GpuSession gpu;
  const CUdeviceptr memory = gpu.Alloc(kMiB);
  std::vector<std::byte> host(kMiB);
  const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(host.data());
  std::vector<CUdeviceptr> to = {memory, memory + kMiB - 10, memory}, froms(3, from);
  std::vector<size_t> sizes(3, 4096);
  const BatchCopy batch = {to.data(), froms.data(), sizes.data(), 3};
  const absl::Status status = gpu.driver().MemcpyBatch(batch, gpu.stream());
  CHECK_THAT(std::string(status.message()), Catch::Matchers::Contains("copy 1"));
  gpu.Require(gpu.driver().MemFree(memory));
}

// In a process of its own, as undefined behaviour ends it.
TEST_CASE("memory that is freed while it is imported ends the process that frees it") {
  FakeCuda fake;
  Exporter exporter;
  GpuSession gpu;
  CUdeviceptr memory = 0;
  const CUipcMemHandle handle = exporter.Alloc(2 * kMiB, 1);
  gpu.Require(gpu.driver().IpcOpenMemHandle(&memory, handle, kOpen));
  CHECK(exporter.DiesFreeing());
  gpu.Require(gpu.driver().IpcCloseMemHandle(memory));
}

}  // namespace
}  // namespace kvkeep
