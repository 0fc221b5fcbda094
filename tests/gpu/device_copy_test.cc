// CudaDevice: bytes, both ways, by every calling convention that drivers have.
#include <catch2/catch.hpp>

#include "tests/gpu/device_rig.h"

namespace kvkeep {
namespace {

TEST_CASE("a worker's memory comes into the arena and goes back, by a handle or a descriptor") {
  const bool by_descriptor = GENERATE(false, true);
  CAPTURE(by_descriptor);
  DeviceRig rig;
  Exporter worker;
  const GpuRegistrationId id =
      by_descriptor ? rig.MustRegister(DeviceRig::Of(worker.AllocVmm(4 * kMiB, 1), 4 * kMiB))
                    : rig.MustRegister(DeviceRig::Of(worker.Alloc(4 * kMiB, 1), 4 * kMiB));
  CHECK(rig.Copy(CopyDirection::kToArena, {{id, 0, kMiB, 4 * kMiB}}).ok());
  CHECK(rig.ArenaHolds(kMiB, Pattern(4 * kMiB, 1)));
  rig.FillArena(5 * kMiB, Pattern(4 * kMiB, 2));
  CHECK(rig.Copy(CopyDirection::kToGpu, {{id, 0, 5 * kMiB, 4 * kMiB}}).ok());
  CHECK(worker.Holds(2));
  const GpuDevice::Stats stats = rig.device().stats();
  CHECK(stats.done_copies == 2);
  CHECK(stats.bytes_to_arena == 4 * kMiB);
  CHECK(stats.bytes_to_gpu == 4 * kMiB);
  CHECK(stats.pieces == 4);  // each goes over a border of the arena's segments
  rig.Unregister(id);
  CHECK(rig.device().stats().registrations == 0);
}

TEST_CASE("a registration begins where the worker said, and ends there") {
  DeviceRig rig;
  Exporter worker;
  GpuMemory memory = DeviceRig::Of(worker.Alloc(4 * kMiB, 1), 4 * kMiB);
  memory.offset = kMiB;
  memory.bytes = 2 * kMiB;
  const GpuRegistrationId id = rig.MustRegister(std::move(memory));
  CHECK(rig.Copy(CopyDirection::kToArena, {{id, 4096, 0, 8192}}).ok());
  const std::vector<std::byte> all = Pattern(4 * kMiB, 1);
  CHECK(rig.ArenaHolds(0, {all.begin() + kMiB + 4096, all.begin() + kMiB + 4096 + 8192}));
  CHECK(rig.Copy(CopyDirection::kToArena, {{id, 2 * kMiB - 1, 0, 2}}).code() ==
        absl::StatusCode::kInvalidArgument);
}

// Pages of the worker's memory, taken from its end to its beginning.
std::vector<GpuRun> Backwards(GpuRegistrationId id, uint64_t bytes, uint64_t page) {
  std::vector<GpuRun> runs;
  for (uint64_t at = 0; at < bytes; at += page) runs.push_back({id, bytes - page - at, at, page});
  return runs;
}

TEST_CASE("scattered runs are copied whatever the driver has for it, and come back the same") {
  struct Driver {
    const char* settings;
    uint64_t submits;  // calls for 256 pieces, 100 at most in each
  };
  const Driver driver =
      GENERATE(Driver{"version 12000", 256}, Driver{"version 12080", 3}, Driver{"version 13000", 3},
               Driver{"version 13000\nmissing cuMemcpyBatchAsync", 256});
  CAPTURE(driver.settings);
  DeviceRig rig(driver.settings, {.max_batch = 100});
  Exporter worker;
  constexpr uint64_t kPage = 8192, kBytes = 256 * kPage;
  const GpuRegistrationId id = rig.MustRegister(DeviceRig::Of(worker.Alloc(kBytes, 1), kBytes));
  CHECK(rig.Copy(CopyDirection::kToArena, Backwards(id, kBytes, kPage)).ok());
  CHECK(rig.device().stats().submits == driver.submits);
  const std::vector<std::byte> all = Pattern(kBytes, 1);
  CHECK(rig.ArenaHolds(0, {all.end() - kPage, all.end()}));
  // Each page of the arena's other half gets the page of the same number.
  rig.FillArena(0, Pattern(kBytes, 2));
  std::vector<GpuRun> apart;  // not adjacent: by every second page, twice
  for (const uint64_t first : {uint64_t{0}, kPage}) {
    for (uint64_t at = first; at < kBytes; at += 2 * kPage) apart.push_back({id, at, at, kPage});
  }
  CHECK(rig.Copy(CopyDirection::kToGpu, apart).ok());
  CHECK(worker.Holds(2));
}

TEST_CASE("one call of the driver has at most 4,096 pieces, whatever a copy has") {
  const std::string version = GENERATE("version 12080\n", "version 13000\n");
  DeviceRig rig(version + "batch_limit 4096");  // beyond it the fake ends the process
  Exporter worker;
  constexpr uint64_t kPage = 256, kBytes = 9000 * kPage;
  const GpuRegistrationId id = rig.MustRegister(DeviceRig::Of(worker.Alloc(kBytes, 1), kBytes));
  CHECK(rig.Copy(CopyDirection::kToArena, Backwards(id, kBytes, kPage)).ok());
  CHECK(rig.device().stats().submits == 3);
  const std::vector<std::byte> all = Pattern(kBytes, 1);
  CHECK(rig.ArenaHolds(0, {all.end() - kPage, all.end()}));
  CHECK(rig.ArenaHolds(kBytes - kPage, {all.begin(), all.begin() + kPage}));
}

TEST_CASE("copies of one direction are done in their order") {
  DeviceRig rig;
  Exporter worker;
  const GpuRegistrationId id = rig.MustRegister(DeviceRig::Of(worker.Alloc(kMiB, 0), kMiB));
  rig.FillArena(0, Pattern(kMiB, 1));
  rig.FillArena(kMiB, Pattern(kMiB, 2));
  std::vector<Answer<CopyEnd>> answers;
  for (uint64_t i = 0; i < 20; ++i) {
    answers.push_back(rig.Start(CopyDirection::kToGpu, {{id, 0, (i % 2) * kMiB, kMiB}}));
  }
  for (Answer<CopyEnd>& answer : answers) CHECK(answer.Await().status.ok());
  CHECK(worker.Holds(2));
}

TEST_CASE("what is not registered is not copied") {
  DeviceRig rig;
  CHECK(rig.Copy(CopyDirection::kToArena, {{GpuRegistrationId(7), 0, 0, 1}}).code() ==
        absl::StatusCode::kNotFound);
  CHECK(rig.Copy(CopyDirection::kToArena, {}).code() == absl::StatusCode::kInvalidArgument);
  Exporter worker;
  const GpuRegistrationId id = rig.MustRegister(DeviceRig::Of(worker.Alloc(kMiB, 0), kMiB));
  rig.Unregister(id);
  CHECK(rig.Copy(CopyDirection::kToArena, {{id, 0, 0, 1}}).code() == absl::StatusCode::kNotFound);
  CHECK(rig.device().stats().failed_copies == 3);
}

TEST_CASE("copies wait in a queue that has a limit") {
  DeviceRig rig("", {.max_queued_copies = 2, .max_issued_copies = 1});
  Exporter worker;
  const GpuRegistrationId id = rig.MustRegister(DeviceRig::Of(worker.Alloc(kMiB, 1), kMiB));
  rig.fake().Set("hang stream");
  // Registered, so that the driver thread does not wait for the hanging stream itself.
  const ArenaRegistered pinned(rig);
  std::vector<Answer<CopyEnd>> good = {rig.Start(CopyDirection::kToArena, {{id, 0, 0, kMiB}})};
  rig.AwaitIssued(1);
  for (int i = 0; i < 2; ++i) {
    good.push_back(rig.Start(CopyDirection::kToArena, {{id, 0, 0, kMiB}}));
  }
  const CopyEnd refused = rig.Start(CopyDirection::kToArena, {{id, 0, 0, kMiB}}).Await();
  CHECK(refused.status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(refused.fenced);
  rig.fake().Set("");
  for (Answer<CopyEnd>& answer : good) CHECK(answer.Await().status.ok());
}

}  // namespace
}  // namespace kvkeep
