// Capacities are hard limits: in G2, in G3, and on the disk.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <iostream>
#include <thread>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;

// Peaks that a polling thread sees.
struct Peaks {
  uint64_t polls = 0, g2_used = 0, g3_used = 0, disk = 0, leased = 0;
};

Peaks WatchWhile(const Site& site, const std::function<void()>& work) {
  Peaks peaks;
  std::atomic<bool> stop{false};
  std::thread watcher([&] {
    while (!stop) {
      const v1::StatusResponse status = site.Status();
      peaks.g2_used = std::max<uint64_t>(peaks.g2_used, status.g2().used_bytes());
      peaks.g3_used = std::max<uint64_t>(peaks.g3_used, status.g3().used_bytes());
      peaks.disk = std::max(peaks.disk, DiskBytes(site.path("nvme0")));
      ++peaks.polls;
      std::this_thread::sleep_for(milliseconds(5));  // for another process
    }
  });
  work();
  stop = true;
  watcher.join();
  return peaks;
}

TEST_CASE("a flood of ten times G3's capacity stays within every capacity, whole or gone") {
  constexpr uint64_t kG2 = 64 << 20, kG3 = 128 << 20;
  Site site({.g2 = "64MiB", .dirty_budget = "50%", .devices = {{.capacity = "128MiB"}}});
  site.Start();
  Engine engine(site);
  std::vector<TestChunk> chunks;
  uint64_t random = 1, total = 0;
  while (total < 10 * kG3) {
    random = random * 6364136223846793005 + 1442695040888963407;
    // Sizes of 64 KiB to 8 MiB, small and large ones equally often, none of them round.
    const size_t bytes =
        (size_t{65536} << (random >> 60) % 8) - (random >> 40) % 5000 * ((random >> 59) & 1);
    const size_t clamped = std::clamp<size_t>(bytes, 64 << 10, 8 << 20);
    chunks.push_back({.number = chunks.size(), .bytes = clamped});
    total += clamped;
  }
  bool put = false;
  const Peaks peaks = WatchWhile(site, [&] { put = engine.PutAll(chunks); });
  INFO("peaks: G2 " << peaks.g2_used << ", G3 " << peaks.g3_used << ", on disk " << peaks.disk
                    << " in " << peaks.polls << " looks");
  INFO(engine.error.ToString());
  CHECK(put);
  CHECK(peaks.polls > 10);
  CHECK(peaks.g2_used <= kG2);
  CHECK(peaks.g3_used <= kG3);
  CHECK(peaks.disk <= kG3);
  CHECK(peaks.g2_used > kG2 / 2);  // otherwise nothing was tested
  CHECK(peaks.g3_used > kG3 / 2);

  REQUIRE(site.AwaitClean());
  const v1::StatusResponse status = site.Status();
  std::cout << "mean extents per chunk: G2 " << status.g2().mean_extents_per_chunk() << ", G3 "
            << status.g3().mean_extents_per_chunk() << "\n";
  CHECK(status.g2().capacity_bytes() == kG2);
  CHECK(status.g3().capacity_bytes() == kG3);
  CHECK(status.devices(0).directory_bytes() <= kG3);
  CHECK(status.g2().mean_extents_per_chunk() < 2);
  CHECK(status.g3().mean_extents_per_chunk() < 2);
  CHECK(status.counters().at("g3_evictions") > 0);

  size_t hits = 0, misses = 0, others = 0;
  for (const TestChunk& chunk : chunks) {
    const GetStatus got = engine.Get(chunk);
    ++(got == GetStatus::kHit ? hits : got == GetStatus::kMiss ? misses : others);
  }
  CHECK(engine.wrong_bytes == 0);
  CHECK(others == 0);
  CHECK(hits > 10);
  CHECK(misses > 10);
  CHECK(site.Counter("corrupt_chunks") == 0);
}

TEST_CASE("what is leased is not evicted by a flood, and more than the cap is not leased") {
  Site site({.g2 = "64MiB", .devices = {{.capacity = "256MiB"}}, .leased_bytes = "25%"});
  site.Start();
  Engine engine(site);
  const std::vector<TestChunk> mine = Chunks(1, 20, (1 << 20) - 8192);
  REQUIRE(engine.PutAll(mine));
  REQUIRE(site.AwaitClean());
  auto found =
      engine.client().Lookup(engine.ns(), KeysOf(mine), {.lease = client::LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  CHECK(found->leading_keys == mine.size());
  CHECK(found->leased_keys == 16);  // of 1 MiB each, header included: a quarter of 64 MiB
  CHECK(site.Status().g2().leased_bytes() <= 16 << 20);

  Engine flood(site, {.name = "flood"});
  REQUIRE(flood.PutAll(Chunks(1000, 40, 4 << 20)));
  for (uint32_t i = 0; i < found->leased_keys; ++i) {
    CHECK(engine.Get(mine[i], &found->lease, i) == GetStatus::kHit);
  }
  CHECK(engine.wrong_bytes == 0);
  CHECK(site.Counter("leases_shortened") == 1);
}

}  // namespace
}  // namespace kvkeep::e2e
