// The GPU path of the local transport, against a scripted daemon: absolute deadlines of puts, gets
// that skip bytes, and what daemons before protocol 8 are not asked for.
#include "tests/client/local/gpu_rig.h"

namespace kvkeep::client {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;
using local::Kind;

TEST_CASE("a get skips bytes of its chunks, a put does not") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  const GpuRegionId id = region.id();
  rig.Write(0, Bytes(1000, 1));
  REQUIRE(rig.PutRuns("a", {{id, 0, 1000}}) == PutStatus::kStored);
  const std::vector<std::byte> before = rig.Read(5000, 1000);
  REQUIRE(rig.GetRuns("a", {{GpuRegionId(), 0, 300}, {id, 5300, 400}, {GpuRegionId(), 0, 300}}) ==
          GetStatus::kHit);
  const std::vector<std::byte> all = Bytes(1000, 1);
  CHECK(rig.Read(5300, 400) == std::vector<std::byte>(all.begin() + 300, all.begin() + 700));
  CHECK(rig.Read(5000, 300) == std::vector<std::byte>(before.begin(), before.begin() + 300));
  CHECK(rig.Read(5700, 300) == std::vector<std::byte>(before.begin() + 700, before.end()));
  const int gets = rig.daemon.requests(Kind::kGetToGpu);
  // A run of no chunk, and an offset in nothing.
  CHECK(rig.GetRuns("a", {{GpuRegionId(), 0, 1000}}) == GetStatus::kUnfinished);
  CHECK_THAT(std::string(rig.last.message()), Contains("none that is of a region"));
  CHECK(rig.GetRuns("a", {{GpuRegionId(), 1, 500}, {id, 0, 500}}) == GetStatus::kUnfinished);
  CHECK(absl::IsInvalidArgument(rig.last));
  CHECK(rig.PutRuns("b", {{GpuRegionId(), 0, 500}, {id, 0, 500}}) == PutStatus::kUnfinished);
  CHECK(absl::IsInvalidArgument(rig.last));
  CHECK(rig.daemon.requests(Kind::kGetToGpu) == gets);
}

TEST_CASE("a put's time is absolute by a daemon that can hold it") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  const auto began = std::chrono::steady_clock::now();
  CHECK(rig.PutRuns("a", {{region.id(), 0, 10}}) == PutStatus::kStored);
  CHECK(rig.daemon.requests(Kind::kPutFromGpu) == 0);
  REQUIRE(rig.gpu->deadlines_ns().size() == 1);
  const std::chrono::nanoseconds until(rig.gpu->deadlines_ns()[0]);
  // The deadline is 10 s away, minus the 1 s left to the answer.
  CHECK(until > began.time_since_epoch());
  CHECK(until < (std::chrono::steady_clock::now() + 10s - 900ms).time_since_epoch());
}

TEST_CASE("memory that is reused is put only to a daemon that can hold absolute deadlines") {
  GpuRig rig;
  GpuMemory memory = MemoryOf(kMemory);
  memory.reused = true;
  const auto reused = rig.transport->RegisterGpuMemory(std::move(memory), Deadline(0));
  REQUIRE(reused.ok());
  const GpuRegion other = rig.MustRegister();
  const auto put = [&](const std::string& key, const GpuRegion& region) {
    return rig.PutRuns(key, {{region.id(), 0, 10}});
  };
  CHECK(put("a", *reused) == PutStatus::kStored);
  rig.LoseDaemon();
  if (GENERATE(false, true)) {
    rig.daemon.script.version = 7;
  } else {
    rig.daemon.script.clock_shift_ns = 1'000'000'000;
  }
  rig.daemon.Start();
  REQUIRE(Eventually([&] { return put("b", other) == PutStatus::kStored; }));
  CHECK(rig.daemon.requests(Kind::kPutFromGpu) >= 1);
  const int sent = rig.daemon.requests(Kind::kPutFromGpu);
  CHECK(put("c", *reused) == PutStatus::kUnfinished);
  CHECK(absl::IsFailedPrecondition(rig.last));
  CHECK_THAT(std::string(rig.last.message()), Contains("absolute deadlines"));
  CHECK(rig.daemon.requests(Kind::kPutFromGpu) == sent);
  CHECK(rig.GetRuns("b", {{reused->id(), 100, 10}}) == GetStatus::kHit);
  CHECK_FALSE(reused->in_use());
}

TEST_CASE("a get without an answer is in use until that comes, whatever else is under way") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  REQUIRE(rig.PutRuns("a", {{region.id(), 0, 10}}) == PutStatus::kStored);
  const auto use = std::make_shared<GpuUse>(), other = std::make_shared<GpuUse>();
  const auto get = [&](const std::shared_ptr<GpuUse>& its, Deadline deadline = Deadline(0)) {
    return rig.GetGpu({{.key = Key("a"), .runs = {{region.id(), 100, 10}}}},
                      {.deadline = deadline, .use = its});
  };
  CHECK_FALSE(use->in_use());
  REQUIRE(get(use).ok());
  CHECK_FALSE(use->in_use());
  rig.daemon.script.hold = static_cast<uint16_t>(Kind::kGetToGpu);
  CHECK(absl::IsDeadlineExceeded(get(use, kUnanswered).status()));
  CHECK(use->in_use());
  REQUIRE(Eventually([&] { return rig.daemon.requests(Kind::kGetToGpu) == 2; }));
  rig.daemon.script.hold = static_cast<uint16_t>(Kind::kPutFromGpuUntil);
  REQUIRE(get(other).ok());
  CHECK(region.in_use());
  CHECK_FALSE(other->in_use());
  if (GENERATE(false, true)) {
    rig.daemon.Let();
  } else {
    rig.daemon.Stop();
    CHECK(use->in_use());  // a copy may still be under way
    rig.process.End();
  }
  CHECK(Eventually([&] { return !use->in_use(); }));
}

TEST_CASE("a get of several messages is in use while one of them has no answer") {
  GpuRig rig;
  rig.daemon.script.max_put_chunks = 1;
  rig.LoseDaemon();
  rig.daemon.Start();
  absl::StatusOr<GpuRegion> region = absl::UnavailableError("");
  REQUIRE(Eventually([&] { return (region = rig.Register()).ok(); }));
  const auto use = std::make_shared<GpuUse>();
  rig.daemon.script.hold = static_cast<uint16_t>(Kind::kGetToGpu);
  std::vector<GpuGetChunk> gets;
  for (const char* name : {"a", "b", "c"}) {
    gets.push_back({.key = Key(name), .runs = {{region->id(), 0, 10}}});
  }
  CHECK(absl::IsDeadlineExceeded(
      rig.GetGpu(gets, {.deadline = kUnanswered, .use = use}).status()));
  CHECK(Eventually([&] { return rig.daemon.requests(Kind::kGetToGpu) == 3; }));
  CHECK(use->in_use());
  rig.daemon.Let();
  CHECK(Eventually([&] { return !use->in_use(); }));
}

TEST_CASE("a daemon that is too old is not asked to skip bytes") {
  GpuRig rig;
  const GpuRegion region = rig.MustRegister();
  rig.LoseDaemon();
  rig.daemon.script.version = 7;
  rig.daemon.Start();
  REQUIRE(Eventually([&] {
    return rig.PutRuns("a", {{region.id(), 0, 10}}) == PutStatus::kStored;
  }));
  CHECK(rig.GetRuns("a", {{region.id(), 0, 5}, {GpuRegionId(), 0, 5}}) == GetStatus::kUnfinished);
  CHECK(absl::IsFailedPrecondition(rig.last));
  CHECK(rig.GetRuns("a", {{region.id(), 0, 10}}) == GetStatus::kHit);
}

}  // namespace
}  // namespace kvkeep::client
