// CudaDevice under several threads at once: the answers, the bytes, and behaviour that the fake
// driver treats as undefined (closing memory under a copy ends the process).
#include <catch2/catch.hpp>
#include <thread>

#include "tests/fakes/seeded_random.h"
#include "tests/gpu/device_rig.h"

namespace kvkeep {
namespace {

constexpr int kThreads = 3;

struct Tally {
  std::atomic<int> wrong_bytes{0};
  std::atomic<int> unexpected{0};
  std::atomic<int> done{0};
};

// A session: registers, copies into its own part of the arena, unregisters at any time, and checks
// the bytes once it is told that they came.
void Session(DeviceRig* rig, const GpuMemory& like, int number, int rounds, Tally* tally) {
  SeededRandom random(static_cast<uint64_t>(number));
  const uint64_t home = static_cast<uint64_t>(number) * DeviceRig::kSegment;
  const std::vector<std::byte> wanted = Pattern(kMiB, number);
  for (int round = 0; round < rounds; ++round) {
    GpuMemory memory;
    memory.handle = like.handle;
    memory.allocation_bytes = memory.bytes = like.bytes;
    memory.owner = like.owner;
    const absl::StatusOr<GpuRegistrationId> id = rig->Register(std::move(memory));
    if (!id.ok()) {
      ++tally->unexpected;
      return;
    }
    std::vector<Answer<CopyEnd>> copies;
    for (uint64_t i = 0; i <= random.Below(3); ++i) {
      copies.push_back(rig->Start(CopyDirection::kToArena, {{*id, 0, home + i * kMiB, kMiB}}));
    }
    if (random.Below(2) == 0) copies[0].Await();
    rig->Unregister(*id);  // some are under way, some are not
    for (uint64_t i = 0; i < copies.size(); ++i) {
      const CopyEnd end = copies[i].Await();
      if (end.status.ok()) {
        ++tally->done;
        if (!rig->ArenaHolds(home + i * kMiB, wanted)) ++tally->wrong_bytes;
      } else if (end.status.code() != absl::StatusCode::kAborted || !end.fenced) {
        ++tally->unexpected;
      }
      rig->FillArena(home + i * kMiB, std::vector<std::byte>(kMiB));  // ours again
    }
  }
}

TEST_CASE("sessions that come, copy and go at once get their own bytes, and only whole ones") {
  DeviceRig rig("copy_delay_us 50", {.max_issued_copies = 2});
  const ArenaRegistered pinned(rig);
  std::vector<std::unique_ptr<Exporter>> workers;
  std::vector<GpuMemory> memories;
  for (int i = 0; i < kThreads; ++i) {
    workers.push_back(std::make_unique<Exporter>());
    memories.push_back(
        DeviceRig::Of(workers.back()->Alloc(kMiB, i), kMiB, static_cast<uint64_t>(i) + 1));
  }
  Tally tally;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(Session, &rig, std::cref(memories[static_cast<size_t>(i)]), i, 40, &tally);
  }
  for (int i = 0; i < 200; ++i) {
    rig.device().Tick();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(tally.wrong_bytes == 0);
  CHECK(tally.unexpected == 0);
  CHECK(tally.done > 0);
  const GpuDevice::Stats stats = rig.device().stats();
  CHECK(stats.registrations == 0);
  CHECK(stats.opened == stats.closed);
  CHECK(stats.queued_copies == 0);
}

}  // namespace
}  // namespace kvkeep
