// GpuPath, as an engine's worker uses it: a client, the (fake) driver of its process, and a
// scripted daemon. The daemon's copies are the endpoint's own; exported memory is real.
#include "client/gpu_path.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "client/gpu/kv_planner.h"
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/fake_gpu_endpoint.h"
#include "tests/fakes/fake_local_daemon.h"
#include "tests/gpu/gpu_session.h"

namespace kvkeep::client {
namespace {

constexpr Deadline kLong{60'000};

ChunkKey Key(const std::string& name) { return *ChunkKey::FromBytes(name); }

struct PathRig {
  FakeCuda fake;
  GpuSession gpu{{.library = FakeCuda::kLibrary}};
  std::shared_ptr<fakes::FakeGpuEndpoint> endpoint = std::make_shared<fakes::FakeGpuEndpoint>();
  fakes::FakeLocalDaemon daemon;
  std::unique_ptr<Client> client;
  Namespace ns;

  PathRig() {
    daemon.SetOther([endpoint = endpoint](local::Kind kind, local::Message& message) {
      return endpoint->Answer(kind, message);
    });
    auto connected = Client::Connect({.endpoint = "unix://" + daemon.socket(),
                                      .client_name = "worker",
                                      .path = PathChoice::kLocal,
                                      .local_socket = daemon.socket()});
    REQUIRE(connected.status() == absl::OkStatus());
    client = *std::move(connected);
    auto opened = client->OpenNamespace({.model = "m", .tokens_per_chunk = 16});
    REQUIRE(opened.status() == absl::OkStatus());
    ns = *opened;
  }
  GpuRange Range(CUdeviceptr address, uint64_t bytes) const {
    return {.address = address, .bytes = bytes, .library = FakeCuda::kLibrary};
  }
};

TEST_CASE("paged KV memory is registered, and its blocks are put and got by their table") {
  PathRig rig;
  GpuPath path(rig.client.get());
  const KvShape shape = {
      .layers = 2, .blocks = 64, .block_tokens = 16, .heads = 4, .head_bytes = 256};
  const uint64_t layer_bytes = 2 * 64 * 16 * 4 * 256;
  const CUdeviceptr memory = rig.gpu.Alloc(16 * kMiB);
  const absl::StatusOr<GpuRegion> region =
      path.Register(rig.Range(memory + kMiB, 2 * layer_bytes), kLong);
  REQUIRE(region.status() == absl::OkStatus());
  const auto said = rig.endpoint->registrations();
  REQUIRE(said.size() == 1);
  CUipcMemHandle handle = {};
  rig.gpu.Require(rig.gpu.driver().IpcGetMemHandle(&handle, memory));
  CHECK(std::memcmp(said[0].said.handle.data(), handle.reserved, 64) == 0);
  CHECK(said[0].said.allocation_bytes == 16 * kMiB);
  CHECK(said[0].said.offset == kMiB);

  rig.endpoint->AddMemory(said[0].said.handle[0], 16 * kMiB);
  const absl::StatusOr<KvPlanner> planner =
      KvPlanner::Make({.layout = KvLayout::Dense(KvFormat::kLayersKvBlocks, shape,
                                                 {{region->id(), 0, layer_bytes},
                                                  {region->id(), layer_bytes, layer_bytes}})});
  REQUIRE(planner.status() == absl::OkStatus());
  const auto runs_of = [&](const std::vector<uint32_t>& table) {
    return planner->Plan({.block_table = table, .first_token = 0, .tokens = 32}).value();
  };
  const std::vector<GpuRun> from = runs_of({3, 9}), to = runs_of({40, 41});
  const std::vector<std::byte> block = Pattern(16 * 4 * 256, 5);
  for (const GpuRun& run : from) {
    REQUIRE(run.bytes == block.size());
    rig.endpoint->Write(said[0].said.handle[0], kMiB + run.offset, block);
  }
  const auto put = path.Put(rig.ns, {{.key = Key("a"), .runs = from}});
  REQUIRE(put.status() == absl::OkStatus());
  CHECK(put->chunks[0].status == PutStatus::kStored);
  const auto got = path.Get(rig.ns, {{.key = Key("a"), .runs = to}});
  REQUIRE(got.status() == absl::OkStatus());
  CHECK(got->chunks[0].status == GetStatus::kHit);
  CHECK(to.size() == 4);  // the two blocks are adjacent
  for (const GpuRun& run : to) {
    const std::vector<std::byte> back =
        rig.endpoint->Read(said[0].said.handle[0], kMiB + run.offset, run.bytes);
    CHECK(std::equal(block.begin(), block.end(), back.begin()));
    CHECK(std::equal(block.begin(), block.end(), back.begin() + 16 * 4 * 256));
  }
  CHECK(path.stats().registered == 1);
  CHECK(path.stats().bytes_got == path.stats().bytes_put);
}

TEST_CASE("without a driver nothing is registered, and the reason is the driver's") {
  PathRig rig;
  GpuPath path(rig.client.get());
  GpuRange range = rig.Range(rig.gpu.Alloc(4 * kMiB), 4 * kMiB);
  range.library = "libno-such-driver.so";
  CHECK(absl::IsNotFound(path.Register(range).status()));
  rig.fake.Set("mig 1\n");
  range.library = FakeCuda::kLibrary;
  CHECK(absl::IsUnimplemented(path.Register(range).status()));
  CHECK(rig.daemon.requests(local::Kind::kRegisterGpuMemory) == 0);
}

TEST_CASE("the client's arena is pinned") {
  PathRig rig;
  const auto pinned =
      GpuPath(rig.client.get()).PinArena({.device = 0, .library = FakeCuda::kLibrary});
  REQUIRE(pinned.status() == absl::OkStatus());
  CHECK(pinned->Await(kLong) == absl::OkStatus());
  CHECK(pinned->stats().pinned_bytes > 0);
}

TEST_CASE("over gRPC there is no GPU path, and it says so") {
  PathRig rig;
  const auto client = Client::Connect({.endpoint = "unix://" + rig.daemon.socket() + ".none",
                                       .default_deadline = Deadline(50),
                                       .path = PathChoice::kGrpc});
  REQUIRE(client.ok());
  GpuPath path(client->get());
  CHECK(absl::IsFailedPrecondition(path.PinArena({}).status()));
  const GpuRange range = rig.Range(rig.gpu.Alloc(4 * kMiB), 4 * kMiB);
  CHECK(absl::IsFailedPrecondition(path.Register(range).status()));
  CHECK(path.stats().registered == 0);
}

}  // namespace
}  // namespace kvkeep::client
