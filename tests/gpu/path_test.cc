// CudaPath on the fake driver: devices that are opened when they are needed and again after they
// broke, and a driver that does not answer.
#include <absl/strings/match.h>

#include "server/gpu/cuda_path.h"
#include "tests/gpu/device_rig.h"

namespace kvkeep {
namespace {

using Registered = absl::StatusOr<GpuPath::Registered>;

class PathRig {
 public:
  static constexpr uint64_t kSegment = 4 << 20, kBytes = 2 << 20;

  PathRig() : memory_(2 * kSegment) {
    fake.Set("devices 2\n");  // for all of this process: the first cuInit counts them
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
    options.max_strikes = 3;
    path = *CudaPath::Create(*std::move(driver), std::move(options), &clock);
  }
  ~PathRig() {
    fake.Set("");
    if (path != nullptr) CHECK(path->Stop(std::chrono::seconds(60)));
  }

  Answer<Registered> Register(const CUipcMemHandle& handle, GpuTenant tenant = GpuTenant()) {
    Answer<Registered> answer;
    GpuMemory memory = DeviceRig::Of(handle, kBytes, 1 + tenant.value());
    memory.tenant = tenant;
    path->Register(uuid, std::move(memory), answer.Callback());
    return answer;
  }
  static void Unregister(const GpuPath::Registered& registered) {
    Answer<bool> closed;
    registered.device->Unregister(registered.id,
                                  [told = closed.Callback()]() mutable { told(true); });
    closed.Await();
  }
  // Waits until every segment of the arena was tried: from then on no other thread calls the
  // driver.
  void AwaitArena() const {
    for (GpuPath::Stats now = path->stats(); now.pinned_bytes + now.refused_bytes < memory_.size();
         now = path->stats()) {
      std::this_thread::yield();
    }
  }
  Answer<CopyEnd> Start(const GpuPath::Registered& registered) {
    Answer<CopyEnd> end;
    registered.device->Copy({.runs = {{.registration = registered.id, .bytes = kBytes}},
                             .deadline = clock.Now() + std::chrono::seconds(10)},
                            end.Callback());
    return end;
  }
  CopyEnd Copy(const GpuPath::Registered& registered) { return Start(registered).Await(); }
  // Waits until the driver has that many copies.
  void AwaitIssued(uint64_t copies) const {
    while (path->stats().sum.issued_copies < copies) std::this_thread::yield();
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

TEST_CASE("what cannot be opened anyway opens no context, of this GPU or another") {
  PathRig t;
  const CUipcMemHandle handle = t.worker.Alloc(PathRig::kBytes, 1);
  const auto refusal = [&](GpuMemory memory) {
    Answer<Registered> answer;
    t.path->Register(t.uuid, std::move(memory), answer.Callback());
    return answer.Await().status();
  };
  GpuMemory nothing = DeviceRig::Of(handle, PathRig::kBytes);
  nothing.bytes = 0;
  CHECK(absl::IsInvalidArgument(refusal(std::move(nothing))));
  GpuMemory own = DeviceRig::Of(handle, PathRig::kBytes);
  own.process = getpid();
  CHECK(absl::IsFailedPrecondition(refusal(std::move(own))));
  CHECK(absl::IsInvalidArgument(refusal(DeviceRig::Of(UniqueFd(), PathRig::kBytes))));
  CHECK(t.path->stats().devices == 0);

  // The first GPU's memory, registered as the second's.
  t.uuid.back() ^= std::byte{1};
  const absl::Status other = refusal(DeviceRig::Of(handle, PathRig::kBytes));
  CHECK(absl::IsInvalidArgument(other));
  CHECK(absl::StrContains(other.message(), "of another GPU than the registration says"));
  t.uuid.back() ^= std::byte{1};
  CHECK(t.Register(handle).Await().ok());
}

TEST_CASE("a tenant whose copies break contexts is refused in the end, and no other tenant is") {
  PathRig t;
  Exporter others;
  const CUipcMemHandle handle = t.worker.Alloc(PathRig::kBytes, 1);
  const CUipcMemHandle theirs = others.Alloc(PathRig::kBytes, 2);
  const GpuTenant bad(1), good(2);
  for (int strike = -1; strike < 3; ++strike) {  // the first break is of both
    INFO("strike " << strike);
    const Registered registered = t.Register(handle, bad).Await();
    const Registered beside = t.Register(theirs, good).Await();
    REQUIRE(registered.ok());
    REQUIRE(beside.ok());
    CHECK(t.Copy(*beside).status.ok());
    t.AwaitArena();
    t.fake.Set("hang stream\n");
    Answer<CopyEnd> first = t.Start(*registered);
    t.AwaitIssued(1);
    Answer<CopyEnd> second = t.Start(*beside);
    if (strike < 0) t.AwaitIssued(2);
    if (strike >= 0) CHECK(t.path->stats().sum.issued_copies == 1);  // it waits apart
    t.clock.Advance(std::chrono::seconds(15));  // beyond the deadline by the time to fence
    CHECK_FALSE(first.Await().status.ok());
    CHECK_FALSE(second.Await().status.ok());
    t.fake.Set("");
    CHECK(t.path->stats().tenants_off == (strike == 2 ? 1 : 0));
  }
  const Registered refused = t.Register(handle, bad).Await();
  CHECK(absl::IsUnavailable(refused.status()));
  CHECK(absl::StrContains(refused.status().message(), "this tenant may use no GPU until"));
  const Registered beside = t.Register(theirs, good).Await();
  REQUIRE(beside.ok());
  CHECK(t.Copy(*beside).status.ok());
  CHECK(absl::StrContains(t.path->describe(), "refused to 1 tenants that broke contexts"));
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
  CHECK(waits.times() == 0);  // it may still open the memory
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
  t.path.reset();  // nothing copies here: keeping it for the real reason would end the process
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
