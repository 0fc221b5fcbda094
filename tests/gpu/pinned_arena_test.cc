// A worker's own mapping of the arena, registered with the (fake) driver.
#include "client/gpu/pinned_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "client/gpu/worker_gpu.h"
#include "tests/client/local/fixture.h"
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/gpu/gpu_session.h"

namespace kvkeep::client {
namespace {

using Catch::Matchers::Contains;

constexpr Deadline kLong{60'000};
constexpr uint64_t kArenaBytes =
    fakes::FakeLocalDaemon::kSegments * fakes::FakeLocalDaemon::kSegmentBytes;

const PinArenaOptions kOnFake = {.device = 0, .library = FakeCuda::kLibrary};

struct PinRig : LocalFixture {
  FakeCuda fake;
  GpuSession gpu{{.library = FakeCuda::kLibrary}};

  absl::StatusOr<PinnedArena> Pin(const PinArenaOptions& options = kOnFake) {
    const auto arena = transport->Arena();
    REQUIRE(arena.status() == absl::OkStatus());
    return PinnedArena::Make(*arena, options);
  }
  PinnedArena MustPin() {
    absl::StatusOr<PinnedArena> pinned = Pin();
    REQUIRE(pinned.status() == absl::OkStatus());
    REQUIRE(pinned->Await(kLong) == absl::OkStatus());
    return *std::move(pinned);
  }
  Acquired MustAcquire(const ChunkKey& key) {
    absl::StatusOr<Acquired> acquired = Acquire(absl::MakeSpan(&key, 1));
    REQUIRE(acquired.status() == absl::OkStatus());
    REQUIRE(acquired->chunks.size() == 1);
    return *std::move(acquired);
  }
};

TEST_CASE(
    "a chunk goes from the arena to the GPU by the worker's own copies, which nobody waits for") {
  PinRig rig;
  const std::vector<std::byte> payload = Bytes(3 * kMiB + 17, 1);
  rig.daemon.script.split_images = true;
  rig.daemon.AddChunk("m", Key("a"), 0, payload);
  const PinnedArena pinned = rig.MustPin();
  CHECK(pinned.stats().finished);
  CHECK(pinned.stats().pinned_bytes == kArenaBytes);
  const Acquired acquired = rig.MustAcquire(Key("a"));
  const CUdeviceptr memory = rig.gpu.Alloc(4 * kMiB);
  rig.fake.Set("hang stream\n");
  CUdeviceptr at = memory;
  for (const std::span<const std::byte> run : acquired.chunks[0].runs) {
    CHECK(pinned.Covers(run));
    // With pageable memory this would not return while the stream hangs.
    rig.gpu.Require(rig.gpu.driver().MemcpyHtoDAsync(at, static_cast<const void*>(run.data()),
                                                     run.size(), rig.gpu.stream()));
    at += run.size();
  }
  rig.fake.Set("");
  rig.gpu.Require(rig.gpu.driver().StreamSynchronize(rig.gpu.stream()));
  CHECK(acquired.valid());
  CHECK(rig.gpu.Read(memory, payload.size()) == payload);
  rig.gpu.Require(rig.gpu.driver().MemFree(memory));
}

TEST_CASE("without a driver the reason is told, and the local path is as it was") {
  PinRig rig;
  rig.daemon.AddChunk("m", Key("a"), 0, Bytes(1000, 1));
  const absl::Status none = rig.Pin({.device = 0, .library = "libno-such-driver.so"}).status();
  CHECK(absl::IsNotFound(none));
  CHECK_THAT(std::string(none.message()), Contains("libno-such-driver.so"));
  CHECK(absl::IsInvalidArgument(rig.Pin({.device = -1, .library = "x"}).status()));
  CHECK(absl::IsInvalidArgument(rig.Pin({.device = 0, .library = ""}).status()));
  CHECK(absl::IsNotFound(rig.Pin({.device = 7, .library = FakeCuda::kLibrary}).status()));
  CHECK(rig.GetOne(Key("a")) == GetStatus::kHit);
}

TEST_CASE("a GPU that registers no read-only memory is told apart from one without a driver") {
  PinRig rig;
  rig.fake.Set("read_only_register 0\n");
  const absl::Status refused = rig.Pin().status();
  CHECK(absl::IsUnimplemented(refused));
  CHECK_THAT(std::string(refused.message()), Contains("read-only"));
}

TEST_CASE("a segment that the driver refuses is named, and the others are registered") {
  PinRig rig;
  rig.fake.Set("fail cuMemHostRegister 2 1 1\n");
  absl::StatusOr<PinnedArena> pinned = rig.Pin();
  REQUIRE(pinned.ok());
  const absl::Status refusal = pinned->Await(kLong);
  CHECK_THAT(std::string(refusal.message()), Contains("cuMemHostRegister"));
  const PinnedArena::Stats stats = pinned->stats();
  CHECK(stats.refused_bytes == fakes::FakeLocalDaemon::kSegmentBytes);
  CHECK(stats.pinned_bytes == kArenaBytes - stats.refused_bytes);
  const auto arena = rig.transport->Arena();
  REQUIRE(arena.ok());
  for (uint32_t i = 0; i < 3; ++i) CHECK(pinned->Covers((*arena)->Segment(i)) == (i != 1));
}

TEST_CASE("what lies outside the arena, or over its end, is not covered") {
  PinRig rig;
  const PinnedArena pinned = rig.MustPin();
  const auto arena = rig.transport->Arena();
  REQUIRE(arena.ok());
  const std::span<const std::byte> segment = (*arena)->Segment(0);
  CHECK(pinned.Covers(segment.last(1)));
  CHECK_FALSE(pinned.Covers({segment.data() + segment.size() - 1, 2}));
  const std::vector<std::byte> other(10);
  CHECK_FALSE(pinned.Covers(other));
  CHECK_FALSE(PinnedArena().Covers(segment));
  CHECK(absl::IsFailedPrecondition(PinnedArena().Await(kLong)));
}

TEST_CASE("destroyed or replaced, all is unregistered and can be registered again") {
  PinRig rig;
  { const PinnedArena first = rig.MustPin(); }
  PinnedArena second = rig.MustPin();
  // The driver refuses registered memory.
  absl::StatusOr<PinnedArena> twice = rig.Pin();
  REQUIRE(twice.ok());
  CHECK(absl::IsAlreadyExists(twice->Await(kLong)));
  second = PinnedArena();
  const PinnedArena third = rig.MustPin();
  CHECK(third.stats().pinned_bytes == kArenaBytes);
}

TEST_CASE("a daemon that came back with another arena has to be pinned anew") {
  PinRig rig;
  const PinnedArena before = rig.MustPin();
  rig.daemon.Stop();
  rig.daemon.NewArena();
  rig.daemon.Start();
  rig.daemon.AddChunk("m", Key("b"), 0, Bytes(5000, 2));
  REQUIRE(Eventually([&] { return rig.GetOne(Key("b")) == GetStatus::kHit; }));
  const Acquired acquired = rig.MustAcquire(Key("b"));
  CHECK_FALSE(before.Covers(acquired.chunks[0].runs[0]));
  const PinnedArena again = rig.MustPin();
  CHECK(again.Covers(acquired.chunks[0].runs[0]));
}

constexpr uint64_t kMappedBytes = 1 << 20;  // of each of two segments

std::shared_ptr<const ArenaMap> MapTwo() {
  auto arena = std::make_shared<ArenaMap>();
  for (int i = 0; i < 2; ++i) {
    const UniqueFd fd(memfd_create("segment", MFD_CLOEXEC));
    REQUIRE(ftruncate(fd.get(), kMappedBytes) == 0);
    arena->segments.push_back(*MappedFile::Map(fd, false, kMappedBytes, kMappedBytes));
  }
  return arena;
}

TEST_CASE("a pinned arena is let go of with its mapping, which it does not keep") {
  PinRig rig;
  std::shared_ptr<const ArenaMap> arena = MapTwo();
  const std::weak_ptr<const ArenaMap> map = arena;
  const std::span<const std::byte> run = arena->segments[1]->memory();
  absl::StatusOr<PinnedArena> pinned = PinnedArena::Make(arena, kOnFake);
  REQUIRE(pinned.status() == absl::OkStatus());
  REQUIRE(pinned->Await(kLong) == absl::OkStatus());
  CHECK(pinned->Covers(run));
  CHECK(pinned->stats().pinned_bytes == 2 * kMappedBytes);
  arena = nullptr;  // the session's, and its leases'
  CHECK(map.expired());
  CHECK_FALSE(pinned->Covers(run));
  CHECK(pinned->stats().pinned_bytes == 0);
  CHECK(absl::IsFailedPrecondition(pinned->Await(kLong)));
}

TEST_CASE("who waits until an arena is pinned hears that it is let go of") {
  PinRig rig;
  std::shared_ptr<const ArenaMap> arena = MapTwo();
  rig.fake.Set("hang cuMemHostRegister\n");
  absl::StatusOr<PinnedArena> pinned = PinnedArena::Make(arena, kOnFake);
  REQUIRE(pinned.status() == absl::OkStatus());
  CHECK(absl::IsDeadlineExceeded(pinned->Await(Deadline(50))));
  std::thread lets_go([&arena] { arena = nullptr; });  // waits for the driver
  CHECK(absl::IsFailedPrecondition(pinned->Await(kLong)));
  rig.fake.Set("");
  lets_go.join();
  CHECK(pinned->stats().pinned_bytes == 0);
}

// ---------------------------------------------------------------- memory for the daemon

struct ExportRig {
  FakeCuda fake;
  GpuSession gpu{{.library = FakeCuda::kLibrary}};
  std::shared_ptr<WorkerGpu> worker;

  ExportRig() {
    auto loaded = WorkerGpu::Load(FakeCuda::kLibrary);
    REQUIRE(loaded.status() == absl::OkStatus());
    worker = *std::move(loaded);
  }
};

TEST_CASE("memory is exported as its whole allocation, the range in it, and the GPU's UUID") {
  ExportRig rig;
  const CUdeviceptr memory = rig.gpu.Alloc(4 * kMiB);
  const absl::StatusOr<GpuMemory> exported = rig.worker->Export(memory + 12345, kMiB);
  REQUIRE(exported.status() == absl::OkStatus());
  CHECK(exported->kind == GpuMemory::Kind::kIpcHandle);
  CHECK(exported->allocation_bytes == 4 * kMiB);
  CHECK(exported->offset == 12345);
  CHECK(exported->bytes == kMiB);
  CUuuid uuid = {};
  CUipcMemHandle handle = {};
  rig.gpu.Require(rig.gpu.driver().DeviceGetUuid(&uuid, rig.gpu.device()));
  rig.gpu.Require(rig.gpu.driver().IpcGetMemHandle(&handle, memory));
  CHECK(std::memcmp(exported->gpu_uuid.data(), uuid.bytes, 16) == 0);
  CHECK(std::memcmp(exported->handle.data(), handle.reserved, 64) == 0);
  CHECK(absl::IsInvalidArgument(rig.worker->Export(memory, 4 * kMiB + 1).status()));
  CHECK(absl::IsInvalidArgument(rig.worker->Export(memory + 1, UINT64_MAX).status()));
  CHECK(absl::IsInvalidArgument(rig.worker->Export(memory, 0).status()));
  CHECK_FALSE(rig.worker->Export(memory + 4 * kMiB, 1).ok());
}

TEST_CASE("small allocations, which may share a block with others, are not given away") {
  ExportRig rig;
  const CUdeviceptr memory = rig.gpu.Alloc(kMiB);
  const absl::Status refused = rig.worker->Export(memory, kMiB).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), Contains("allocation_bytes"));
}

// Memory of cuMemCreate, mapped.
CUdeviceptr Mapped(GpuSession& gpu, size_t bytes, CUmemAllocationHandleType type) {
  CUmemAllocationProp properties = gpu.Properties();
  properties.requestedHandleTypes = type;
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr address = 0;
  gpu.Require(gpu.driver().MemCreate(&memory, bytes, &properties, 0ull));
  gpu.Require(gpu.driver().MemAddressReserve(&address, bytes, size_t{0}, 0ull, 0ull));
  gpu.Require(gpu.driver().MemMap(address, bytes, size_t{0}, memory, 0ull));
  const CUmemAccessDesc access = {.location = properties.location,
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  gpu.Require(gpu.driver().MemSetAccess(address, bytes, &access, size_t{1}));
  gpu.Require(gpu.driver().MemRelease(memory));
  return address;
}

TEST_CASE("memory of expandable segments is exported as a file descriptor") {
  ExportRig rig;
  const CUdeviceptr memory = Mapped(rig.gpu, 4 * kMiB, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const absl::StatusOr<GpuMemory> exported = rig.worker->Export(memory + 7, kMiB);
  REQUIRE(exported.status() == absl::OkStatus());
  CHECK(exported->kind == GpuMemory::Kind::kDescriptor);
  CHECK(exported->allocation_bytes == 4 * kMiB);
  CHECK(exported->offset == 7);
  CUmemGenericAllocationHandle opened = 0;
  rig.gpu.Require(rig.gpu.driver().MemImportFromShareableHandle(
      &opened, reinterpret_cast<void*>(static_cast<intptr_t>(exported->descriptor.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  rig.gpu.Require(rig.gpu.driver().MemRelease(opened));
}

TEST_CASE("memory of cuMemCreate that was not made to be shared says so") {
  ExportRig rig;
  const CUdeviceptr memory = Mapped(rig.gpu, 2 * kMiB, CU_MEM_HANDLE_TYPE_NONE);
  const absl::Status refused = rig.worker->Export(memory, kMiB).status();
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()), Contains("file descriptor"));
}

TEST_CASE("a MIG instance has no handles to give away") {
  ExportRig rig;
  const CUdeviceptr memory = rig.gpu.Alloc(4 * kMiB);
  rig.fake.Set("mig 1\n");
  CHECK(absl::IsUnimplemented(rig.worker->Export(memory, kMiB).status()));
}

}  // namespace
}  // namespace kvkeep::client
