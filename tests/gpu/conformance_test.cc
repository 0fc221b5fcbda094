// Behaviour of NVIDIA's driver in one process that kvkeep relies on: devices, memory, copies,
// order. Each case states the rule; tests/fakes/cuda says where it is from.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>

#include "tests/gpu/gpu_session.h"
#include "tests/gpu/pattern.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

std::optional<CUresult> ErrorOf(const absl::Status& status) { return CudaErrorOf(status); }

void* Bare(std::vector<std::byte>& bytes) { return bytes.data(); }

TEST_CASE("a device has a UUID, a name and a PCI address, the same at every question") {
  GpuSession gpu;
  CUuuid uuid = {}, again = {};
  gpu.Require(gpu.driver().DeviceGetUuid(&uuid, gpu.device()));
  gpu.Require(gpu.driver().DeviceGetUuid(&again, gpu.device()));
  CHECK(std::string(uuid.bytes, 16) == std::string(again.bytes, 16));
  CHECK(std::string(uuid.bytes, 16) != std::string(16, '\0'));
  std::vector<char> text(64);
  gpu.Require(gpu.driver().DeviceGetName(text.data(), 64, gpu.device()));
  CHECK(text[0] != '\0');
  gpu.Require(gpu.driver().DeviceGetPCIBusId(text.data(), 64, gpu.device()));
  CHECK(std::string(text.data()).size() >= 12);
  CHECK(ErrorOf(gpu.driver().DeviceGetUuid(&uuid, 1000)) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("without a current context a call is refused with 201") {
  GpuSession gpu;
  gpu.Require(gpu.driver().CtxSetCurrent(static_cast<CUcontext>(nullptr)));
  CUdeviceptr address = 0;
  CHECK(ErrorOf(gpu.driver().MemAlloc(&address, kMiB)) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("the range of an address is its allocation's, and is gone with it") {
  GpuSession gpu;
  const CUdeviceptr memory = gpu.Alloc(4 * kMiB);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  gpu.Require(gpu.driver().MemGetAddressRange(&base, &bytes, memory + 3 * kMiB));
  CHECK(base == memory);
  CHECK(bytes == 4 * kMiB);
  gpu.Require(gpu.driver().MemFree(memory));
  CHECK_FALSE(gpu.driver().MemGetAddressRange(&base, &bytes, memory).ok());
}

TEST_CASE("no memory of no bytes, and none beyond the device's") {
  GpuSession gpu;
  CUdeviceptr address = 0;
  CHECK(ErrorOf(gpu.driver().MemAlloc(&address, size_t{0})) == CUDA_ERROR_INVALID_VALUE);
  CHECK(ErrorOf(gpu.driver().MemAlloc(&address, size_t{1} << 50)) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("copies bring bytes there and back, from pageable and from registered memory") {
  GpuSession gpu;
  const bool registered = GENERATE(false, true);
  CAPTURE(registered);
  std::vector<std::byte> there = Pattern(3 * kMiB + 17, 1);
  if (registered) {
    gpu.Require(gpu.driver().MemHostRegister(Bare(there), there.size(),
                                             unsigned{CU_MEMHOSTREGISTER_PORTABLE}));
  }
  const CUdeviceptr memory = gpu.Alloc(4 * kMiB);
  gpu.Write(memory + 5, there);
  CHECK(gpu.Read(memory + 5, there.size()) == there);
  CHECK(gpu.Read(memory + 5 + 1000, 4096) ==
        std::vector<std::byte>(there.begin() + 1000, there.begin() + 1000 + 4096));
  if (registered) gpu.Require(gpu.driver().MemHostUnregister(Bare(there)));
  gpu.Require(gpu.driver().MemFree(memory));
}

TEST_CASE("registered memory is not registered again, and unregistered by its address only") {
  GpuSession gpu;
  std::vector<std::byte> memory(4 * kMiB);
  const unsigned portable = CU_MEMHOSTREGISTER_PORTABLE;
  void* const second = memory.data() + 2 * kMiB;
  gpu.Require(gpu.driver().MemHostRegister(Bare(memory), 3 * kMiB, portable));
  CHECK(ErrorOf(gpu.driver().MemHostRegister(Bare(memory), 3 * kMiB, portable)) ==
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK(ErrorOf(gpu.driver().MemHostRegister(second, 2 * kMiB, portable)) ==
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK(ErrorOf(gpu.driver().MemHostUnregister(second)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(ErrorOf(gpu.driver().MemHostUnregister(memory.data() + 3 * kMiB)) ==
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  gpu.Require(gpu.driver().MemHostUnregister(Bare(memory)));
  CHECK(ErrorOf(gpu.driver().MemHostUnregister(Bare(memory))) ==
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_CASE(
    "memory that is mapped read-only takes a flag, and then brings bytes to the device only") {
  GpuSession gpu;
  int possible = 0;
  gpu.Require(gpu.driver().DeviceGetAttribute(
      &possible, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, gpu.device()));
  if (possible == 0) return;  // kvkeep asks first
  const std::vector<std::byte> pattern = Pattern(kMiB, 5);
  const UniqueFd file(memfd_create("read-only", MFD_CLOEXEC));
  REQUIRE(write(file.get(), pattern.data(), kMiB) == static_cast<ssize_t>(kMiB));
  void* const mapped = mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, file.get(), 0);
  REQUIRE(mapped != MAP_FAILED);
  const unsigned portable = CU_MEMHOSTREGISTER_PORTABLE;
  CHECK_FALSE(gpu.driver().MemHostRegister(mapped, kMiB, portable).ok());
  gpu.Require(gpu.driver().MemHostRegister(mapped, kMiB, portable | CU_MEMHOSTREGISTER_READ_ONLY));
  const CUdeviceptr memory = gpu.Alloc(kMiB);
  gpu.Require(
      gpu.driver().MemcpyHtoDAsync(memory, static_cast<const void*>(mapped), kMiB, gpu.stream()));
  gpu.Require(gpu.driver().StreamSynchronize(gpu.stream()));
  CHECK(gpu.Read(memory, kMiB) == pattern);
  gpu.Require(gpu.driver().MemHostUnregister(mapped));
  gpu.Require(gpu.driver().MemFree(memory));
  munmap(mapped, kMiB);
}

TEST_CASE("an address tells its device, and one of the host none") {
  GpuSession gpu;
  const CUdeviceptr memory = gpu.Alloc(kMiB);
  int ordinal = -1;
  const auto ask = [&](CUdeviceptr address) {
    return gpu.driver().PointerGetAttribute(static_cast<void*>(&ordinal),
                                            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  };
  gpu.Require(ask(memory + kMiB - 1));
  CHECK(ordinal == 0);
  CHECK(ErrorOf(ask(reinterpret_cast<CUdeviceptr>(&gpu))) == CUDA_ERROR_INVALID_VALUE);
  gpu.Require(gpu.driver().MemFree(memory));
}

TEST_CASE("a copy whose host memory is registered in part is refused") {
  GpuSession gpu;
  // Whole pages: registering takes the pages around the range.
  std::vector<std::byte> memory(4 * kMiB);
  auto* const page = reinterpret_cast<std::byte*>(
      (reinterpret_cast<uintptr_t>(memory.data()) + kMiB - 1) / kMiB * kMiB);
  gpu.Require(gpu.driver().MemHostRegister(static_cast<void*>(page), kMiB,
                                           unsigned{CU_MEMHOSTREGISTER_PORTABLE}));
  const CUdeviceptr device = gpu.Alloc(4 * kMiB);
  CHECK(ErrorOf(gpu.driver().MemcpyHtoDAsync(device, static_cast<const void*>(page + kMiB / 2),
                                             kMiB, gpu.stream())) == CUDA_ERROR_INVALID_VALUE);
  gpu.Require(gpu.driver().MemHostUnregister(static_cast<void*>(page)));
  gpu.Require(gpu.driver().MemFree(device));
}

TEST_CASE("what a stream was given is done in that order") {
  GpuSession gpu;
  std::vector<std::byte> first = Pattern(kMiB, 1), second = Pattern(kMiB, 2), back(kMiB);
  for (auto* const memory : {&first, &second, &back}) {
    gpu.Require(gpu.driver().MemHostRegister(Bare(*memory), kMiB, 0u));
  }
  const CUdeviceptr device = gpu.Alloc(kMiB);
  const CUstream stream = gpu.stream();
  for (int i = 0; i < 20; ++i) {
    const std::vector<std::byte>& from = i % 2 == 0 ? first : second;
    gpu.Require(
        gpu.driver().MemcpyHtoDAsync(device, static_cast<const void*>(from.data()), kMiB, stream));
  }
  gpu.Require(gpu.driver().MemcpyDtoHAsync(Bare(back), device, kMiB, stream));
  gpu.Require(gpu.driver().StreamSynchronize(stream));
  CHECK(back == second);
  for (auto* const memory : {&first, &second, &back}) {
    gpu.Require(gpu.driver().MemHostUnregister(Bare(*memory)));
  }
  gpu.Require(gpu.driver().MemFree(device));
}

TEST_CASE("an event is complete when its stream has got there; one never recorded is") {
  GpuSession gpu;
  CUevent event = nullptr;
  gpu.Require(gpu.driver().EventCreate(&event, unsigned{CU_EVENT_DISABLE_TIMING}));
  CHECK(gpu.driver().raw().EventQuery(event) == CUDA_SUCCESS);
  gpu.Require(gpu.driver().EventRecord(event, gpu.stream()));
  gpu.Require(gpu.driver().EventSynchronize(event));
  CHECK(gpu.driver().raw().EventQuery(event) == CUDA_SUCCESS);
  CHECK(gpu.driver().raw().StreamQuery(gpu.stream()) == CUDA_SUCCESS);
  gpu.Require(gpu.driver().EventDestroy(event));
}

TEST_CASE("a stream that waits for an event sees what was done before it") {
  GpuSession gpu;
  std::vector<std::byte> from = Pattern(kMiB, 3), back(kMiB);
  gpu.Require(gpu.driver().MemHostRegister(Bare(from), kMiB, 0u));
  gpu.Require(gpu.driver().MemHostRegister(Bare(back), kMiB, 0u));
  CUstream other = nullptr;
  CUevent written = nullptr;
  gpu.Require(gpu.driver().StreamCreate(&other, unsigned{CU_STREAM_NON_BLOCKING}));
  gpu.Require(gpu.driver().EventCreate(&written, unsigned{CU_EVENT_DISABLE_TIMING}));
  const CUdeviceptr device = gpu.Alloc(kMiB);
  gpu.Require(gpu.driver().MemcpyHtoDAsync(device, static_cast<const void*>(from.data()), kMiB,
                                           gpu.stream()));
  gpu.Require(gpu.driver().EventRecord(written, gpu.stream()));
  gpu.Require(gpu.driver().StreamWaitEvent(other, written, 0u));
  gpu.Require(gpu.driver().MemcpyDtoHAsync(Bare(back), device, kMiB, other));
  gpu.Require(gpu.driver().StreamSynchronize(other));
  CHECK(back == from);
  gpu.Require(gpu.driver().EventDestroy(written));
  gpu.Require(gpu.driver().StreamDestroy(other));
  gpu.Require(gpu.driver().MemHostUnregister(Bare(from)));
  gpu.Require(gpu.driver().MemHostUnregister(Bare(back)));
  gpu.Require(gpu.driver().MemFree(device));
}

struct Rows {
  std::vector<CUdeviceptr> to, from;
  std::vector<size_t> sizes;
  BatchCopy batch() { return {to.data(), from.data(), sizes.data(), sizes.size()}; }
};

// Page i of the host to page n-1-i of the device.
Rows Reversed(CUdeviceptr device, const std::vector<std::byte>& host, size_t page) {
  Rows rows;
  const size_t pages = host.size() / page;
  for (size_t i = 0; i < pages; ++i) {
    rows.to.push_back(device + (pages - 1 - i) * page);
    rows.from.push_back(reinterpret_cast<CUdeviceptr>(host.data() + i * page));
    rows.sizes.push_back(page);
  }
  return rows;
}

TEST_CASE("a batch copies every row, by both conventions") {
  const int convention = GENERATE(12080, 13000);
  GpuDriver::Options options;
  options.cuda_version = convention;
  GpuSession gpu(options);
  if (gpu.driver().version() < convention) {
    WARN("skipped: this driver has no batch copies of CUDA " << convention);
    return;
  }
  constexpr size_t kPage = 8192;
  std::vector<std::byte> host = Pattern(4 * kMiB, 4);
  gpu.Require(gpu.driver().MemHostRegister(Bare(host), host.size(), 0u));
  const CUdeviceptr device = gpu.Alloc(host.size());
  Rows rows = Reversed(device, host, kPage);
  gpu.Require(gpu.driver().MemcpyBatch(rows.batch(), gpu.stream()));
  const std::vector<std::byte> there = gpu.Read(device, host.size());
  size_t wrong = 0;
  for (size_t i = 0; i < host.size() / kPage; ++i) {
    const auto at = there.end() - static_cast<ptrdiff_t>((i + 1) * kPage);
    wrong += !std::equal(at, at + kPage, host.begin() + static_cast<ptrdiff_t>(i * kPage));
  }
  CHECK(wrong == 0);
  gpu.Require(gpu.driver().MemHostUnregister(Bare(host)));
  gpu.Require(gpu.driver().MemFree(device));
}

TEST_CASE("a batch of no rows is refused") {
  GpuSession gpu;
  if (gpu.driver().batch_copy_abi() == BatchCopyAbi::kNone) {
    WARN("skipped: this driver has no batch copies");
    return;
  }
  Rows rows;
  CHECK(ErrorOf(gpu.driver().MemcpyBatch(rows.batch(), gpu.stream())) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a context that was reset has nothing of before, and can be used again") {
  GpuSession gpu;
  const CUdeviceptr before = gpu.Alloc(kMiB);
  gpu.ResetContext();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CHECK_FALSE(gpu.driver().MemGetAddressRange(&base, &bytes, before).ok());
  CUcontext context = nullptr;
  gpu.Require(gpu.driver().DevicePrimaryCtxRetain(&context, gpu.device()));
  gpu.Require(gpu.driver().CtxSetCurrent(context));
  const CUdeviceptr after = gpu.Alloc(kMiB);
  gpu.Require(gpu.driver().MemFree(after));
  gpu.Require(gpu.driver().DevicePrimaryCtxRelease(gpu.device()));
}

}  // namespace
}  // namespace kvkeep
