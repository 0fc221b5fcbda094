// The whole GPU path, on the fake driver: a worker's process owns the GPU memory, the client
// registers it, and the daemon's endpoint, in a process of its own, opens it and copies. Nothing is
// scripted.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "server/gpu/gpu_path.h"
#include "server/local/endpoint.h"
#include "tests/client/local/blocking.h"
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/gpu/exporter.h"
#include "tests/gpu/gpu_session.h"
#include "tiers/base/check.h"
#include "tiers/base/random.h"

namespace kvkeep::client {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kBytes = 4 * kMiB;  // of a worker's memory, and of a chunk
constexpr std::chrono::seconds kStop{30};

// The daemon's part: endpoint, store, arena and driver.
struct Daemon {
  explicit Daemon(const std::string& socket) {
    auto made = CreateArena({.capacity_bytes = 64 * kMiB,
                             .segment_bytes = 16 * kMiB,
                             .backing = ArenaBacking::kMemfd,
                             .prefault = false},
                            pool.get());
    KVKEEP_CHECK(made.ok());
    arena = *std::move(made);
    auto opened = Store::Create(
        {.max_chunks = 1000, .max_reserved_bytes = 13 * kMiB},
        {.clock = RealClock(),
         .random = RealRandom(),
         .arena = arena.get(),
         .copy_executor = pool.get()});
    KVKEEP_CHECK(opened.ok());
    store = *std::move(opened);
    auto path = OpenGpuPath(GpuMode::kRequired, arena.get(), RealClock());
    KVKEEP_CHECK(path.ok());
    gpu = *std::move(path);
    LocalEndpoint::Options options;
    options.listeners.push_back({.socket = {.path = socket, .mode = 0600}});
    auto started = LocalEndpoint::Start(options, {.store = store.get(),
                                                  .arena = arena.get(),
                                                  .copy_executor = pool.get(),
                                                  .counters = &counters,
                                                  .gpu = gpu.get(),
                                                  .clock = RealClock(),
                                                  .serving_state = [] { return 2u; }});
    KVKEEP_CHECK(started.ok());
    endpoint = *std::move(started);
  }
  ~Daemon() {
    endpoint.reset();
    KVKEEP_CHECK(gpu->Stop(kStop));
    store.reset();
  }

  kvkeep::LocalCounters counters;
  std::unique_ptr<ThreadPool> pool = std::make_unique<ThreadPool>("copy", 2);
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Store> store;
  std::unique_ptr<GpuPath> gpu;  // the daemon's
  std::unique_ptr<LocalEndpoint> endpoint;
};

// A Daemon in a process of its own, as CUDA refuses handles between equal process ids. The
// constructor makes the process at once, as this one must have no threads and no driver then; Begin
// starts the daemon in it.
class ForkedDaemon {
 public:
  explicit ForkedDaemon(const std::string& socket) {
    std::array<int, 2> ready{}, stop{};
    REQUIRE((pipe2(ready.data(), O_CLOEXEC) == 0 && pipe2(stop.data(), O_CLOEXEC) == 0));
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(stop[1]);
      char byte = 0;
      if (read(stop[0], &byte, 1) == 1) {
        const Daemon daemon(socket);
        (void)!write(ready[1], &byte, 1);
        (void)!read(stop[0], &byte, 1);  // until the test closes its end
      }
      _exit(0);
    }
    close(ready[1]);
    close(stop[0]);
    ready_ = UniqueFd(ready[0]);
    stop_ = UniqueFd(stop[1]);
    REQUIRE(pid_ > 0);
  }
  void Begin() {
    char byte = 0;
    REQUIRE(write(stop_.get(), &byte, 1) == 1);
    REQUIRE(read(ready_.get(), &byte, 1) == 1);
  }
  ~ForkedDaemon() {
    if (pid_ == 0) return;
    stop_.Reset();
    int status = 0;
    CHECK(waitpid(pid_, &status, 0) == pid_);
    CHECK(
        (WIFEXITED(status) && WEXITSTATUS(status) == 0));  // undefined behaviour ends it
  }
  void Kill() {
    REQUIRE(kill(pid_, SIGKILL) == 0);
    REQUIRE(waitpid(std::exchange(pid_, 0), nullptr, 0) > 0);
  }

 private:
  int pid_ = 0;
  UniqueFd ready_, stop_;
};

struct Processes {
  FakeCuda fake;
  const ScratchDir dir;
  ForkedDaemon next{dir / "local.sock"};
  ForkedDaemon daemon{dir / "local.sock"};

  Processes() { daemon.Begin(); }
};

struct WholeRig : Processes, Blocking {
  WholeRig() : Blocking(dir / "local.sock") {
    GpuSession session;
    CUuuid device = {};
    session.Require(session.driver().DeviceGetUuid(&device, session.device()));
    std::memcpy(uuid.data(), device.bytes, uuid.size());
  }

  client::GpuMemory MemoryOf(const CUipcMemHandle& handle) const {
    client::GpuMemory memory;
    memory.gpu_uuid = uuid;
    std::memcpy(memory.handle.data(), handle.reserved, memory.handle.size());
    memory.allocation_bytes = memory.bytes = kBytes;
    return memory;
  }
  client::GpuMemory MemoryOf(UniqueFd descriptor) const {
    client::GpuMemory memory;
    memory.kind = client::GpuMemory::Kind::kDescriptor;
    memory.gpu_uuid = uuid;
    memory.descriptor = std::move(descriptor);
    memory.allocation_bytes = memory.bytes = kBytes;
    return memory;
  }
  GpuRegion MustRegister(client::GpuMemory memory) {
    auto region = transport->RegisterGpuMemory(std::move(memory), Deadline(0));
    REQUIRE(region.status() == absl::OkStatus());
    return *std::move(region);
  }
  PutStatus PutGpu(const ChunkKey& key, std::vector<GpuRun> runs) {
    const auto put = Wait<absl::StatusOr<PutResult>>([&](auto done) {
      transport->PutFromGpu(ns, spec, {{.key = key, .runs = runs}}, {}, std::move(done));
    });
    last = put.ok() ? put->error : put.status();
    message = put.ok() ? put->chunks[0].message : "";
    return put.ok() ? put->chunks[0].status : PutStatus::kUnfinished;
  }
  GetStatus GetGpu(const ChunkKey& key, std::vector<GpuRun> runs) {
    const auto got = Wait<absl::StatusOr<GetResult>>([&](auto done) {
      transport->GetToGpu(ns, spec, {{.key = key, .runs = runs}}, {}, std::move(done));
    });
    last = got.ok() ? got->error : got.status();
    return got.ok() ? got->chunks[0].status : GetStatus::kUnfinished;
  }

  std::array<uint8_t, 16> uuid{};
};

TEST_CASE("a chunk goes from one worker's GPU memory through the arena into another's") {
  WholeRig rig;
  Exporter writer, reader;
  const bool descriptors = GENERATE(false, true);
  CAPTURE(descriptors);
  const auto memory = [&](Exporter& worker, int seed) {
    return descriptors ? rig.MemoryOf(worker.AllocVmm(kBytes, seed))
                       : rig.MemoryOf(worker.Alloc(kBytes, seed));
  };
  GpuRegion from = rig.MustRegister(memory(writer, 1));
  GpuRegion to = rig.MustRegister(memory(reader, 2));
  // In two runs that are swapped in the payload, and back.
  const uint64_t half = kBytes / 2;
  CHECK(rig.PutGpu(Key("a"), {{from.id(), half, half}, {from.id(), 0, half}}) ==
        PutStatus::kStored);
  CHECK(rig.message == "");
  CHECK(rig.GetGpu(Key("a"), {{to.id(), half, half}, {to.id(), 0, half}}) == GetStatus::kHit);
  CHECK(reader.Holds(1));
  CHECK(writer.Holds(1));
  // The same bytes by shared memory: the daemon stored what the worker had.
  CHECK(rig.GetOne(Key("a")) == GetStatus::kHit);
  const std::vector<std::byte> pattern = Pattern(kBytes, 1);
  CHECK(std::equal(rig.back.begin(), rig.back.begin() + half, pattern.begin() + half));
  CHECK(rig.GetGpu(Key("b"), {{to.id(), 0, kBytes}}) == GetStatus::kMiss);
  // The daemon closes it before the worker frees it: otherwise the fake ends the worker's process.
  CHECK(from.Unregister(Deadline(10'000)) == absl::OkStatus());
  CHECK(to.Unregister(Deadline(10'000)) == absl::OkStatus());
  if (!descriptors) {
    writer.Free();
    reader.Free();
  }
}

// Copy threads, the device's and the loop meet at the end of each group of a put, and each round.
TEST_CASE("puts in rounds of several copies are whole, and then their source is free") {
  WholeRig rig;
  Exporter worker;
  GpuRegion from = rig.MustRegister(rig.MemoryOf(worker.Alloc(kBytes, 1)));
  const std::vector<std::byte> pattern = Pattern(kBytes, 1);
  constexpr size_t kChunks = 6;  // 24 MiB: two rounds, each of two groups
  for (int round = 0; round < 10; ++round) {
    std::vector<GpuPutChunk> chunks;
    for (size_t i = 0; i < kChunks; ++i) {
      const auto key = Key(absl::StrCat("round ", round, " chunk ", i % (kChunks - round % 2)));
      chunks.push_back({.key = key, .runs = {{from.id(), 0, kBytes}}});
    }
    const auto put = rig.Wait<absl::StatusOr<PutResult>>([&](auto done) {
      rig.transport->PutFromGpu(rig.ns, rig.spec, std::move(chunks), {}, std::move(done));
    });
    REQUIRE(put.ok());
    for (const PutOutcome& one : put->chunks) CHECK(one.status != PutStatus::kRejected);
    CHECK(rig.GetOne(Key(absl::StrCat("round ", round, " chunk 4"))) == GetStatus::kHit);
    CHECK(rig.back == pattern);
  }
  CHECK(Eventually([&] { return !from.in_use(); }));
  CHECK(from.Unregister(Deadline(10'000)) == absl::OkStatus());
  worker.Free();
}

TEST_CASE("the daemon refuses by name what it cannot open, and serves the rest") {
  WholeRig rig;
  Exporter worker;
  client::GpuMemory strange = rig.MemoryOf(worker.Alloc(kBytes, 1));
  strange.handle[0] ^= 0xff;
  CHECK_FALSE(rig.transport->RegisterGpuMemory(std::move(strange), Deadline(0)).ok());
  client::GpuMemory elsewhere = rig.MemoryOf(CUipcMemHandle{});
  elsewhere.gpu_uuid.fill(0x77);
  CHECK_FALSE(rig.transport->RegisterGpuMemory(std::move(elsewhere), Deadline(0)).ok());
  CHECK(rig.transport->gpu_stats().refused == 2);
  CHECK(rig.PutOne(Key("a"), Bytes(1000, 1)) == PutStatus::kStored);
}

TEST_CASE("a daemon that was killed has let go, and the next one is told of the memory again") {
  WholeRig rig;
  Exporter worker;
  GpuRegion region = rig.MustRegister(rig.MemoryOf(worker.Alloc(kBytes, 3)));
  const std::vector<GpuRun> all = {{region.id(), 0, kBytes}};
  CHECK(rig.PutGpu(Key("a"), all) == PutStatus::kStored);
  rig.daemon.Kill();
  REQUIRE(Eventually([&] { return !rig.transport->WaitConnected(Deadline(0)); }));
  CHECK_FALSE(region.in_use());
  CHECK(region.usable().ok());
  CHECK(unlink((rig.dir / "local.sock").c_str()) == 0);
  rig.next.Begin();
  REQUIRE(Eventually([&] { return rig.PutGpu(Key("a"), all) == PutStatus::kStored; }));
  CHECK(rig.GetGpu(Key("a"), all) == GetStatus::kHit);
  CHECK(rig.transport->gpu_stats().registered_again == 1);
  CHECK(worker.Holds(3));
  CHECK(region.Unregister(Deadline(10'000)) == absl::OkStatus());
  worker.Free();
}

TEST_CASE("a worker that is killed costs its own call, and no other session") {
  WholeRig rig;
  Blocking other(rig.dir / "local.sock");
  Exporter worker;
  const GpuRegion region = rig.MustRegister(rig.MemoryOf(worker.Alloc(kBytes, 4)));
  worker.Kill();
  (void)rig.PutGpu(Key("a"), {{region.id(), 0, kBytes}});  // its memory may still be there
  CHECK(other.PutOne(Key("b"), Bytes(1000, 1)) == PutStatus::kStored);
  CHECK(other.GetOne(Key("b")) == GetStatus::kHit);
}

}  // namespace
}  // namespace kvkeep::client
