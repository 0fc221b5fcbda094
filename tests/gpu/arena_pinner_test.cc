#include "gpu/arena_pinner.h"

#include <catch2/catch.hpp>

#include "tests/fakes/manual_executor.h"
#include "tests/gpu/device_rig.h"

namespace kvkeep {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kSegment = DeviceRig::kSegment;

TEST_CASE("the arena is registered segment by segment, other work in between") {
  DeviceRig rig;
  ManualExecutor executor;
  ArenaPinner pinner(&rig.driver(), rig.device().device(), {rig.options().arena.segments},
                     &executor);
  for (uint64_t i = 0; i < 3; ++i) {
    CHECK(pinner.stats().pinned_bytes == i * kSegment);
    CHECK_FALSE(pinner.stats().finished);
    REQUIRE(executor.size() == 1);
    executor.RunOne();
  }
  CHECK(pinner.stats().pinned_bytes == 3 * kSegment);
  CHECK(pinner.stats().finished);
  CHECK(executor.idle());
}

TEST_CASE("copies are served before, while and after the arena is registered") {
  DeviceRig rig;
  ManualExecutor executor;
  Exporter worker;
  const uint64_t bytes = 2 * kSegment;
  const GpuRegistrationId id = rig.MustRegister(DeviceRig::Of(worker.Alloc(bytes, 1), bytes));
  ArenaPinner pinner(&rig.driver(), rig.device().device(), {rig.options().arena.segments},
                     &executor);
  for (int i = 0; i < 4; ++i) {
    // One run over all segments: never one copy over memory that is registered in part.
    CHECK(rig.Copy(CopyDirection::kToArena, {{id, 0, kSegment / 2, bytes}}).ok());
    CHECK(rig.ArenaHolds(kSegment / 2, Pattern(bytes, 1)));
    rig.FillArena(kSegment / 2, std::vector<std::byte>(bytes));
    if (!executor.idle()) executor.RunOne();
  }
  CHECK(pinner.stats().finished);
}

TEST_CASE("whoever ends it has the context that it had") {
  DeviceRig rig;
  CUcontext own = nullptr, after = nullptr;
  REQUIRE(rig.driver().DevicePrimaryCtxRetain(&own, rig.device().device()).ok());
  REQUIRE(rig.driver().CtxSetCurrent(own).ok());
  {
    ManualExecutor executor;
    ArenaPinner pinner(&rig.driver(), rig.device().device(), {rig.options().arena.segments},
                       &executor);
    executor.RunAll();
    REQUIRE(rig.driver().CtxSetCurrent(own).ok());
  }
  REQUIRE(rig.driver().CtxGetCurrent(&after).ok());
  CHECK(after == own);
  CHECK(rig.driver().DevicePrimaryCtxRelease(rig.device().device()).ok());
}

TEST_CASE("a segment that the driver refuses is counted, and the others are registered") {
  DeviceRig rig;
  ManualExecutor executor;
  rig.fake().Set("fail cuMemHostRegister 2 1 1");
  ArenaPinner pinner(&rig.driver(), rig.device().device(), {rig.options().arena.segments},
                     &executor);
  executor.RunAll();
  CHECK(pinner.stats().pinned_bytes == 2 * kSegment);
  CHECK(pinner.stats().refused_bytes == kSegment);
  CHECK_THAT(std::string(pinner.stats().first_refusal.message()), Contains("cuMemHostRegister"));
  CHECK(pinner.stats().finished);
}

TEST_CASE("a segment whose memory is to come is registered once it is there, not before") {
  DeviceRig rig;
  ManualExecutor executor;
  size_t whole = 1;
  ArenaPinner pinner(&rig.driver(), rig.device().device(),
                     {.segments = rig.options().arena.segments,
                      .is_whole = [&whole](size_t segment) { return segment < whole; }},
                     &executor);
  executor.RunAll();
  CHECK(pinner.stats().pinned_bytes == kSegment);
  pinner.Continue();
  CHECK(executor.RunAll() == 1);  // looks again
  CHECK(pinner.stats().pinned_bytes == kSegment);
  CHECK_FALSE(pinner.stats().finished);
  whole = 3;
  pinner.Continue();
  pinner.Continue();
  executor.RunAll();
  CHECK(pinner.stats().pinned_bytes == 3 * kSegment);
  CHECK(pinner.stats().refused_bytes == 0);
  CHECK(pinner.stats().finished);
}

TEST_CASE("destroyed, it has unregistered all, and what it had still to do does nothing") {
  DeviceRig rig;
  ManualExecutor left_over, executor;
  {
    ArenaPinner pinner(&rig.driver(), rig.device().device(), {rig.options().arena.segments},
                       &left_over);
    left_over.RunOne();
    left_over.RunOne();
    CHECK(pinner.stats().pinned_bytes == 2 * kSegment);
  }
  CHECK(left_over.RunAll() == 1);
  // The driver would refuse registered memory.
  ArenaPinner again(&rig.driver(), rig.device().device(), {rig.options().arena.segments},
                    &executor);
  executor.RunAll();
  CHECK(again.stats().pinned_bytes == 3 * kSegment);
}

TEST_CASE("without a context nothing is registered, and that is all") {
  DeviceRig rig;
  ManualExecutor executor;
  rig.fake().Set("fail cuDevicePrimaryCtxRetain 2");
  ArenaPinner pinner(&rig.driver(), rig.device().device(), {rig.options().arena.segments},
                     &executor);
  executor.RunAll();
  CHECK(pinner.stats().refused_bytes == 3 * kSegment);
}

}  // namespace
}  // namespace kvkeep
