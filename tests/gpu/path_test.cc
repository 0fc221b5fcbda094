// CudaPath on the fake driver: devices opened when they are needed and again when they broke, and a
// driver that does not answer.
#include <absl/strings/match.h>

#include "server/gpu/cuda_path.h"
#include "tests/gpu/device_rig.h"

namespace kvkeep {
namespace {

using Registered = absl::StatusOr<GpuPath::Registered>;

class PathRig {
 public:
  static constexpr uint64_t kSegment = 4 << 20, kBytes = 2 << 20;

  explicit PathRig(const std::string& settings = "") : memory_(2 * kSegment) {
    fake.Set(settings);
    auto driver = GpuDriver::Load({.library = FakeCuda::kLibrary});
    REQUIRE(driver.status() == absl::OkStatus());
    CUuuid first = {};
    REQUIRE((*driver)->DeviceGetUuid(&first, 0).ok());
    std::memcpy(uuid.data(), first.bytes, uuid.size());
    CudaPathOptions options;
    for (uint64_t i = 0; i < 2; ++i) {
      options.arena.segments.push_back(std::span(memory_).subspan(i * kSegment, kSegment));
    }
    options.arena.segment_bytes = kSegment;
    options.max_openings = 3;
    path = *CudaPath::Create(*std::move(driver), std::move(options), &clock);
  }
  ~PathRig() {
    fake.Set("");
    if (path != nullptr) CHECK(path->Stop(std::chrono::seconds(60)));
  }

  Answer<Registered> Register(const CUipcMemHandle& handle) {
    Answer<Registered> answer;
    path->Register(uuid, DeviceRig::Of(handle, kBytes), answer.Callback());
    return answer;
  }
  static void Unregister(const GpuPath::Registered& registered) {
    Answer<bool> closed;
    registered.device->Unregister(registered.id,
                                  [told = closed.Callback()]() mutable { told(true); });
    closed.Await();
  }
  // Until every segment of the arena was tried: from then on no other thread calls the driver.
  void AwaitArena() const {
    for (GpuPath::Stats now = path->stats(); now.pinned_bytes + now.refused_bytes < memory_.size();
         now = path->stats()) {
      std::this_thread::yield();
    }
  }
  CopyEnd Copy(const GpuPath::Registered& registered) {
    Answer<CopyEnd> end;
    registered.device->Copy({.runs = {{.registration = registered.id, .bytes = kBytes}},
                             .deadline = clock.Now() + std::chrono::seconds(10)},
                            end.Callback());
    return end.Await();
  }

  FakeCuda fake;
  SharedClock clock;
  GpuUuid uuid{};
  Exporter worker;
  std::unique_ptr<GpuPath> path;

 private:
  std::vector<std::byte> memory_;
};

}  // namespace

TEST_CASE("a GPU is touched at the first registration of its memory, and the arena then") {
  PathRig t;
  CHECK(t.path->stats().devices == 0);
  CHECK(absl::StartsWith(t.path->describe(), "on, driver of CUDA 13.0, 0 GPUs in use"));
  const CUipcMemHandle handle = t.worker.Alloc(PathRig::kBytes, 1);
  const Registered registered = t.Register(handle).Await();
  REQUIRE(registered.ok());
  CHECK(t.Copy(*registered).status.ok());
  CHECK(t.path->stats().devices == 1);
  CHECK(t.path->stats().sum.registrations == 1);
  CHECK(t.path->stats().sum.bytes_to_arena == PathRig::kBytes);
  PathRig::Unregister(*registered);
  CHECK(t.path->stats().sum.closed == 1);
}

TEST_CASE("memory of a GPU that is not there is refused") {
  PathRig t;
  t.uuid[0] ^= std::byte{1};
  const Registered refused = t.Register(t.worker.Alloc(PathRig::kBytes, 1)).Await();
  CHECK(absl::IsNotFound(refused.status()));
  CHECK(t.path->stats().devices == 0);
}

TEST_CASE("a broken device is replaced at the next registration, so many times and no more") {
  PathRig t;
  const CUipcMemHandle handle = t.worker.Alloc(PathRig::kBytes, 1);
  std::vector<GpuPath::Registered> old;
  for (uint64_t opening = 1; opening <= 3; ++opening) {
    const Registered registered = t.Register(handle).Await();
    REQUIRE(registered.ok());
    CHECK(t.Copy(*registered).status.ok());
    CHECK(t.path->stats().devices == 1);
    // The arena's thread would break the context that comes after the reset, while "sticky" stands.
    t.AwaitArena();
    t.fake.Set("sticky 700\n");
    CHECK(absl::IsUnavailable(t.Copy(*registered).status));
    t.fake.Set("");
    CHECK(t.path->stats().broken == opening);
    old.push_back(*registered);
    // An old registration is never taken for one of the new device with the same number.
    for (const GpuPath::Registered& before : old) {
      CHECK(absl::IsUnavailable(t.Copy(before).status));
    }
  }
  const Registered refused = t.Register(handle).Await();
  CHECK(absl::IsUnavailable(refused.status()));
  CHECK(absl::StrContains(refused.status().message(), "until the daemon starts again"));
  CHECK(absl::StrContains(t.path->describe(), "3 given up"));
}

TEST_CASE("a registration is answered when the driver does, and counted when that is late") {
  PathRig t;
  const CUipcMemHandle handle = t.worker.Alloc(PathRig::kBytes, 1);
  t.fake.Set("hang cuIpcOpenMemHandle\n");
  Answer<Registered> waits = t.Register(handle);
  t.path->Tick();
  CHECK(waits.times() == 0);
  t.clock.Advance(std::chrono::seconds(31));
  t.path->Tick();
  t.path->Tick();
  CHECK(waits.times() == 0);  // it may open the memory yet
  CHECK(t.path->stats().unanswered == 1);
  t.fake.Set("");
  const Registered late = waits.Await();
  REQUIRE(late.ok());
  CHECK(t.Copy(*late).status.ok());
  PathRig::Unregister(*late);
  CHECK(t.path->stats().sum.opened == 1);
  CHECK(t.path->stats().sum.closed == 1);
  CHECK(waits.times() == 1);
}

TEST_CASE("the path stops with registrations that nobody gave back, or that wait") {
  PathRig t;
  const CUipcMemHandle handle = t.worker.Alloc(PathRig::kBytes, 1);
  REQUIRE(t.Register(handle).Await().ok());
  for (int i = 0; i < 20; ++i) t.Register(handle);
  CHECK(t.path->Stop(std::chrono::seconds(60)));
  CHECK(t.path->stats().devices == 0);
}

TEST_CASE("a path that keeps what a copy still uses does not stop") {
  PathRig t;
  auto holder = std::make_shared<int>(1);
  t.path->KeepForEver(holder);
  CHECK(holder.use_count() == 2);
  CHECK(t.path->stats().kept == 1);
  CHECK_FALSE(t.path->Stop(std::chrono::seconds(60)));
  t.path.reset();  // here nothing copies: who keeps it for the reason it is for ends the process
}

TEST_CASE("a path that is off says why to whoever asks") {
  const auto off = MakeGpuPathOff("nobody wants it");
  Answer<Registered> answer;
  off->Register({}, {}, answer.Callback());
  CHECK(absl::IsFailedPrecondition(answer.Await().status()));
  CHECK(off->describe() == "off: nobody wants it");
  CHECK_FALSE(off->stats().on);
  CHECK(off->Stop(std::chrono::seconds(1)));
}

}  // namespace kvkeep
