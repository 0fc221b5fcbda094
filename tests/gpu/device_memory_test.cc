// CudaDevice: what may be registered, and when it is closed.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/sanitized.h"
#include "tests/gpu/device_rig.h"

namespace kvkeep {
namespace {

using Catch::Matchers::Contains;

void CheckRefused(const absl::StatusOr<GpuRegistrationId>& id, absl::StatusCode code,
                  const std::string& words) {
  CHECK(id.status().code() == code);
  CHECK_THAT(std::string(id.status().message()), Contains(words));
}

TEST_CASE("no device has the UUID: the GPU path is off, and says so") {
  DeviceRig rig;
  CudaDeviceOptions options = rig.options();
  options.uuid[15] = std::byte{77};
  const absl::Status status =
      CudaDevice::Open(&rig.driver(), options, rig.executor(), &rig.clock()).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(status.message()), Contains("UUID"));
}

TEST_CASE("a device that gives no context is not opened, and leaves nothing behind") {
  DeviceRig rig;
  for (const char* call : {"cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate"}) {
    rig.fake().Set(std::string("fail ") + call + " 2");
    const absl::Status status =
        CudaDevice::Open(&rig.driver(), rig.options(), rig.executor(), &rig.clock()).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()), Contains(call));
  }
}

TEST_CASE("each known refusal has a reason in words") {
  DeviceRig rig;
  Exporter worker;
  const CUipcMemHandle handle = worker.Alloc(4 * kMiB, 1);
  GpuMemory own = DeviceRig::Of(handle, 4 * kMiB);
  own.process = getpid();
  CheckRefused(rig.Register(std::move(own)), absl::StatusCode::kFailedPrecondition,
               "both have process id");
  CheckRefused(rig.Register(DeviceRig::Of(handle, 8 * kMiB)), absl::StatusCode::kInvalidArgument,
               "the handle's memory has 4194304");
  CheckRefused(rig.Register(DeviceRig::Of(CUipcMemHandle{}, kMiB)),
               absl::StatusCode::kInvalidArgument, "not one of cuIpcGetMemHandle");
  CheckRefused(rig.Register(DeviceRig::Of(UniqueFd(dup(STDERR_FILENO)), 2 * kMiB)),
               absl::StatusCode::kInvalidArgument, "not one of cuMemExportToShareableHandle");
  rig.fake().Set("fail cuIpcOpenMemHandle 201");
  CheckRefused(rig.Register(DeviceRig::Of(handle, 4 * kMiB)), absl::StatusCode::kFailedPrecondition,
               "PID namespace");
  rig.fake().Set("mig 1");
  CheckRefused(rig.Register(DeviceRig::Of(handle, 4 * kMiB)), absl::StatusCode::kUnimplemented,
               "MIG");
  rig.fake().Set("");
  worker.Free();
  CheckRefused(rig.Register(DeviceRig::Of(handle, 4 * kMiB)), absl::StatusCode::kInvalidArgument,
               "freed this memory");
  CHECK(rig.device().stats().refused_registrations == 7);
  CHECK(rig.device().stats().registrations == 0);
  CHECK(rig.device().stats().broken.empty());
}

TEST_CASE("a descriptor is registered with its exact size, and any failure undoes what was done") {
  DeviceRig rig;
  Exporter worker;
  CheckRefused(rig.Register(DeviceRig::Of(worker.AllocVmm(4 * kMiB, 1), 2 * kMiB)),
               absl::StatusCode::kInvalidArgument, "what cuMemCreate was asked for");
  for (const char* call : {"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    GpuMemory memory = DeviceRig::Of(worker.AllocVmm(4 * kMiB, 1), 4 * kMiB);
    rig.fake().Set(std::string("fail ") + call + " 2");  // the worker's driver fails as well
    CheckRefused(rig.Register(std::move(memory)), absl::StatusCode::kResourceExhausted, call);
    rig.fake().Set("");
  }
  rig.Unregister(rig.MustRegister(DeviceRig::Of(worker.AllocVmm(4 * kMiB, 1), 4 * kMiB)));
}

TEST_CASE("registrations have a limit") {
  DeviceRig rig("", {.max_registrations = 2});
  Exporter worker;
  const CUipcMemHandle handle = worker.Alloc(2 * kMiB, 1);
  const GpuRegistrationId first = rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB));
  rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB));
  CheckRefused(rig.Register(DeviceRig::Of(handle, 2 * kMiB)), absl::StatusCode::kResourceExhausted,
               "2 registrations");
  rig.Unregister(first);
  rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB));
}

TEST_CASE("two sessions never have one mapping, also when their handles are the same bytes") {
  DeviceRig rig;
  Exporter worker;
  const CUipcMemHandle handle = worker.Alloc(2 * kMiB, 1);
  const GpuRegistrationId first = rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB, 1));
  const GpuRegistrationId again = rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB, 1));
  CheckRefused(rig.Register(DeviceRig::Of(handle, 2 * kMiB, 2)), absl::StatusCode::kAlreadyExists,
               "another session");
  rig.Unregister(first);
  rig.Unregister(again);
  rig.Unregister(rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB, 2)));
}

TEST_CASE("a handle of the same bytes waits until the one before it is closed") {
  DeviceRig rig;
  Exporter worker;
  const CUipcMemHandle handle = worker.Alloc(2 * kMiB, 1);
  const GpuRegistrationId old_id = rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB, 1));
  const ArenaRegistered pinned(rig);
  rig.fake().Set("hang stream");
  Answer<CopyEnd> copy = rig.Start(CopyDirection::kToArena, {{old_id, 0, 0, kMiB}});
  rig.AwaitIssued(1);
  Answer<bool> closed;
  rig.device().Unregister(old_id, [done = closed.Callback()]() mutable { done(true); });
  Answer<absl::StatusOr<GpuRegistrationId>> opened;
  rig.device().Register(DeviceRig::Of(handle, 2 * kMiB, 2), opened.Callback());
  CHECK(rig.device().stats().opened == 1);
  rig.fake().Set("");
  CHECK(copy.Await().status.ok());
  CHECK(opened.Await().ok());
  CHECK(closed.times() == 1);
}

TEST_CASE("a handle is closed when the copies in it have ended, and what waits is cancelled") {
  DeviceRig rig("", {.max_issued_copies = 1});
  Exporter worker;
  const CUipcMemHandle handle = worker.Alloc(2 * kMiB, 1);
  const GpuRegistrationId id = rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB));
  const ArenaRegistered pinned(rig);
  rig.fake().Set("hang stream");
  Answer<CopyEnd> issued = rig.Start(CopyDirection::kToArena, {{id, 0, 0, kMiB}});
  rig.AwaitIssued(1);
  Answer<CopyEnd> waiting = rig.Start(CopyDirection::kToArena, {{id, 0, 0, kMiB}});
  Answer<bool> closed;
  rig.device().Unregister(id, [done = closed.Callback()]() mutable { done(true); });
  CHECK(waiting.Await().status.code() == absl::StatusCode::kAborted);
  CHECK(rig.Copy(CopyDirection::kToArena, {{id, 0, 0, 1}}).code() == absl::StatusCode::kNotFound);
  CHECK(closed.times() == 0);
  CHECK(rig.device().stats().closed == 0);
  rig.fake().Set("");
  CHECK(issued.Await().status.ok());
  closed.Await();
  CHECK(rig.device().stats().closed == 1);
  rig.Unregister(id);  // given back already: at once
}

struct Held {
  size_t descriptors = 0;
  size_t mappings = 0;
  bool operator==(const Held&) const = default;
};

Held Holding() {
  Held held;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    held.descriptors += entry.path().empty() ? 0 : 1;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    held.mappings += line.find("fakecuda") != std::string::npos;
  }
  return held;
}

TEST_CASE("after thousands of registrations nothing is left over") {
  DeviceRig rig;
  Exporter worker;
  const CUipcMemHandle handle = worker.Alloc(2 * kMiB, 1);
  rig.Unregister(rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB)));
  const Held before = Holding();
  // The sanitizers make each one twenty times as expensive.
  constexpr int kTimes = kSanitized ? 1000 : 10'000;
  for (int i = 0; i < kTimes; ++i) {
    rig.Unregister(rig.MustRegister(DeviceRig::Of(handle, 2 * kMiB)));
  }
  CHECK(Holding() == before);
  CHECK(rig.device().stats().opened == kTimes + 1);
  CHECK(rig.device().stats().closed == kTimes + 1);
}

}  // namespace
}  // namespace kvkeep
