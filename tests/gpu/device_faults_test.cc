// CudaDevice: copies that fail, come late or never end. Each gets its end reported once, with
// whether the memory may be reused.
#include <catch2/catch.hpp>
#include <thread>

#include "tests/gpu/device_rig.h"

namespace kvkeep {
namespace {

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

// A rig with a worker's memory, and the arena registered.
struct Site {
  explicit Site(CudaDeviceOptions options = {}) : rig("", std::move(options)) {
    id = rig.MustRegister(DeviceRig::Of(worker.Alloc(2 * kMiB, 1), 2 * kMiB));
    pinned = std::make_unique<ArenaRegistered>(rig);
  }
  Answer<CopyEnd> Start() { return rig.Start(CopyDirection::kToArena, {{id, 0, 0, kMiB}}); }

  DeviceRig rig;
  Exporter worker;
  GpuRegistrationId id;
  std::unique_ptr<ArenaRegistered> pinned;
};

void CheckEnd(Answer<CopyEnd>& answer, absl::StatusCode code, bool fenced) {
  const CopyEnd end = answer.Await();
  CHECK(end.status.code() == code);
  CHECK(end.fenced == fenced);
  CHECK(answer.times() == 1);
}

TEST_CASE("a copy that the driver refuses ends with the driver's reason, and others go on") {
  Site site;
  site.rig.fake().Set("fail cuMemcpyDtoHAsync 1 0 1");
  Answer<CopyEnd> refused = site.Start();
  CHECK_THAT(std::string(refused.Await().status.message()), Contains("cuMemcpyDtoHAsync"));
  CheckEnd(refused, absl::StatusCode::kInvalidArgument, true);
  Answer<CopyEnd> next = site.Start();
  CheckEnd(next, absl::StatusCode::kOk, true);
}

TEST_CASE("a copy refused half way ends when its first half is through") {
  Site site({.max_batch = 2});
  std::vector<GpuRun> apart;
  for (uint64_t i = 0; i < 6; ++i) apart.push_back({site.id, i * 8192, i * 16384, 4096});
  site.rig.fake().Set("hang stream\nfail cuMemcpyBatchAsync 1 1");
  Answer<CopyEnd> copy = site.rig.Start(CopyDirection::kToArena, apart);
  while (site.rig.device().stats().submits < 2) std::this_thread::yield();
  CHECK(copy.times() == 0);
  site.rig.fake().Set("");
  CheckEnd(copy, absl::StatusCode::kInvalidArgument, true);
  CHECK(site.rig.device().stats().pieces == 2);
}

TEST_CASE("a copy that takes long is asked for seldom, until another begins") {
  Site site({.poll_interval = std::chrono::microseconds(1), .max_poll_interval = 1h});
  const auto polls = [&] { return site.rig.device().stats().polls; };
  site.rig.fake().Set("hang stream");
  Answer<CopyEnd> first = site.Start();
  while (polls() < 10) std::this_thread::yield();
  site.rig.clock().Advance(9s);  // 562 ms to the next check
  const uint64_t before = polls();
  CHECK_FALSE(first.ComesWithin(50ms));
  CHECK(polls() <= before + 2);  // one that was under way, and it may wake for nothing
  Answer<CopyEnd> second = site.Start();
  while (polls() < before + 10) std::this_thread::yield();
  site.rig.fake().Set("");
  CheckEnd(first, absl::StatusCode::kOk, true);
  CheckEnd(second, absl::StatusCode::kOk, true);
}

TEST_CASE("what had no turn before its deadline ends so, while the driver does something else") {
  Site site({.max_issued_copies = 1});
  site.rig.fake().Set("hang stream");
  Answer<CopyEnd> issued = site.Start();
  site.rig.AwaitIssued(1);
  Answer<CopyEnd> waiting = site.Start();
  site.rig.clock().Advance(DeviceRig::kInTime + std::chrono::seconds(1));
  site.rig.device().Tick();
  CheckEnd(waiting, absl::StatusCode::kDeadlineExceeded, true);
  CHECK(issued.times() == 0);  // the driver has it: no end before it is through
  site.rig.fake().Set("");
  CheckEnd(issued, absl::StatusCode::kDeadlineExceeded, true);
  CHECK(site.rig.device().stats().late_copies == 2);
  CHECK(site.rig.device().stats().broken.empty());
}

TEST_CASE(
    "copies that do not end are fenced by a reset of the context, and the device is given up") {
  Site site;
  site.rig.fake().Set("hang stream");
  Answer<CopyEnd> first = site.Start(), second = site.Start();
  site.rig.AwaitIssued(2);
  site.rig.clock().Advance(DeviceRig::kInTime + site.rig.options().fence_timeout);
  CheckEnd(first, absl::StatusCode::kUnavailable, true);
  CheckEnd(second, absl::StatusCode::kUnavailable, true);
  CHECK_THAT(site.rig.device().stats().broken, Contains("does not end"));
  // From now on it reports that at once, and takes registrations back.
  Answer<CopyEnd> later = site.Start();
  CheckEnd(later, absl::StatusCode::kUnavailable, true);
  CHECK(site.rig.Register(DeviceRig::Of(CUipcMemHandle{}, kMiB)).status().code() ==
        absl::StatusCode::kUnavailable);
  site.rig.Unregister(site.id);
  CHECK(site.rig.device().stats().registrations == 0);
}

TEST_CASE("a broken context ends all copies, fenced, whatever call finds it") {
  const char* settings = GENERATE("sticky 700", "fail cuEventQuery 719", "fail cuEventRecord 999",
                                  "fail cuMemcpyDtoHAsync 214", "fail cuEventCreate 700");
  CAPTURE(settings);
  Site site;
  site.rig.fake().Set(settings);
  Answer<CopyEnd> copy = site.Start();
  CheckEnd(copy, absl::StatusCode::kUnavailable, true);
  while (site.rig.device().stats().broken.empty()) std::this_thread::yield();
  Answer<CopyEnd> later = site.Start();
  CheckEnd(later, absl::StatusCode::kUnavailable, true);
  site.rig.Unregister(site.id);
}

TEST_CASE(
    "a driver that hangs in a call, or in the reset, leaves copies abandoned, not unanswered") {
  const char* settings = GENERATE("hang cuMemcpyDtoHAsync", "hang cuEventRecord",
                                  "hang cuEventQuery", "hang stream\nhang cuDevicePrimaryCtxReset");
  CAPTURE(settings);
  Site site;
  site.rig.fake().Set(settings);
  Answer<CopyEnd> copy = site.Start();
  site.rig.AwaitIssued(1);
  Answer<CopyEnd> waiting = site.Start();
  const auto fence = site.rig.options().fence_timeout;
  site.rig.clock().Advance(DeviceRig::kInTime + fence);
  site.rig.device().Tick();
  CHECK(copy.times() == 0);
  site.rig.clock().Advance(fence);
  site.rig.device().Tick();
  CheckEnd(copy, absl::StatusCode::kDeadlineExceeded, false);
  CHECK_FALSE(waiting.Await().status.ok());
  CHECK(site.rig.device().stats().abandoned_copies >= 1);
  CHECK_FALSE(site.rig.device().stats().broken.empty());
  Answer<CopyEnd> later = site.Start();
  CheckEnd(later, absl::StatusCode::kUnavailable, true);
  // The memory belongs to no one: the handle stays open, and is not reported as closed.
  Answer<bool> closed;
  site.rig.device().Unregister(site.id, [done = closed.Callback()]() mutable { done(true); });
  site.rig.fake().Set("");
  site.rig.DestroyDevice();
  CHECK(closed.times() == 0);
  CHECK(copy.times() == 1);
}

TEST_CASE("a reset that the driver refuses is no fence") {
  Site site;
  site.rig.fake().Set("hang stream\nfail cuDevicePrimaryCtxReset 999");
  Answer<CopyEnd> copy = site.Start();
  site.rig.AwaitIssued(1);
  site.rig.clock().Advance(DeviceRig::kInTime + site.rig.options().fence_timeout);
  CheckEnd(copy, absl::StatusCode::kUnavailable, false);
  CHECK(site.rig.device().stats().abandoned_copies == 1);
  site.rig.fake().Set("");
}

TEST_CASE("a worker that is killed while its memory is copied harms nobody") {
  Site site;
  Exporter other;
  const GpuRegistrationId others =
      site.rig.MustRegister(DeviceRig::Of(other.Alloc(kMiB, 5), kMiB, 2));
  site.rig.fake().Set("hang stream");
  Answer<CopyEnd> copy = site.Start();
  site.rig.AwaitIssued(1);
  site.worker.Kill();
  site.rig.fake().Set("");
  CheckEnd(copy, absl::StatusCode::kOk, true);
  site.rig.Unregister(site.id);
  CHECK(site.rig.Copy(CopyDirection::kToArena, {{others, 0, 0, kMiB}}).ok());
  CHECK(site.rig.ArenaHolds(0, Pattern(kMiB, 5)));
}

TEST_CASE("a device that is destroyed cancels what waits, and waits for what the driver has") {
  Site site({.max_issued_copies = 2});
  site.rig.fake().Set("hang stream");
  std::vector<Answer<CopyEnd>> answers;
  for (int i = 0; i < 10; ++i) answers.push_back(site.Start());
  site.rig.AwaitIssued(2);
  std::thread destroys([&] { site.rig.DestroyDevice(); });
  for (size_t i = 2; i < answers.size(); ++i) {
    CheckEnd(answers[i], absl::StatusCode::kAborted, true);
  }
  CHECK(answers[0].times() + answers[1].times() == 0);
  site.rig.fake().Set("");
  destroys.join();
  for (size_t i = 0; i < 2; ++i) CheckEnd(answers[i], absl::StatusCode::kOk, true);
}

TEST_CASE("a device that is destroyed while a stream hangs resets its context") {
  Site site;
  site.rig.fake().Set("hang stream");
  Answer<CopyEnd> copy = site.Start();
  site.rig.AwaitIssued(1);
  site.rig.clock().Advance(DeviceRig::kInTime + site.rig.options().fence_timeout);
  site.rig.DestroyDevice();
  CheckEnd(copy, absl::StatusCode::kUnavailable, true);
}

}  // namespace
}  // namespace kvkeep
