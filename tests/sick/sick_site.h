// SickSite: a daemon whose G3 is on a SickDisk. However a test ends, the disk is healed first, so
// that nothing waits for it; then the daemon dies, and then the disk is removed.
#pragma once

#include <signal.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/e2e/engine.h"
#include "tests/e2e/latencies.h"
#include "tests/sick/sick_disk.h"

namespace kvkeep::sick {

using e2e::Chunks;
using e2e::Engine;
using e2e::Eventually;
using e2e::Latencies;
using e2e::milliseconds;
using e2e::TestChunk;

inline constexpr size_t kCold = 60, kChunkBytes = 400'000;

// Returns false, and prints why, if no sick disk can be made here.
inline bool CanBeSick() {
  const std::string why_not = WhyNoSickDisk();
  if (!why_not.empty()) WARN("skipped: " << why_not);
  return why_not.empty();
}

class SickSite {
 public:
  explicit SickSite(const std::string& disk_size = "320M", const std::string& capacity = "192MiB")
      : disk(disk_size), site(OnDisk(disk, capacity)) {
    site.Start();
  }
  ~SickSite() { disk.Heal(); }

  // Puts chunks durable: `cold` ones end up on the disk only, `warm` ones in G2 too.
  void Fill() {
    Engine engine(site);
    REQUIRE(engine.PutAll(cold, {.durable = true}));
    REQUIRE(engine.PutAll(Chunks(5'000, 60, kChunkBytes), {.no_g3 = true}));  // evict it from G2
    REQUIRE(engine.PutAll(warm, {.durable = true}));
    const Engine::Presence there = engine.Find(cold);
    REQUIRE(there.g3 == cold.size());
    REQUIRE(there.g2 == 0);
  }
  std::string State() const { return site.Status().devices(0).state(); }
  bool AwaitStateOtherThan(const std::string& state, milliseconds timeout = milliseconds(20'000)) {
    return Eventually([&] { return State() != state; }, timeout);
  }
  // Stops the daemon, which must end by itself and in time, whatever its device does.
  void StopInTime() {
    site.Signal(SIGTERM);
    const e2e::Ending end = site.AwaitEnd(milliseconds(60'000));
    INFO(end.err);
    CHECK(end.signal == 0);
  }
  // Heals the disk, and mounts its file system anew.
  void Repair() {
    disk.Heal();
    disk.Unmount();
    disk.Mount();
  }

  SickDisk disk;
  e2e::Site site;
  const std::vector<TestChunk> cold = Chunks(1, kCold, kChunkBytes);
  const std::vector<TestChunk> warm = Chunks(1'000, 8, kChunkBytes);

 private:
  static e2e::Settings OnDisk(const SickDisk& disk, const std::string& capacity) {
    return {.g2 = "24MiB",
            .devices = {{.name = disk.dir() + "/g3", .capacity = capacity}},
            .drain_timeout = "3s",
            .metrics = "127.0.0.1:" + std::to_string(FreePort()),
            .local = true};
  }
};

// Makes a durable put. Returns whether it was acknowledged: stored, or present.
inline bool PutDurable(Engine& engine, const TestChunk& chunk) {
  const client::PutOutcome put = engine.Put(chunk, {.durable = true});
  return put.status == client::PutStatus::kStored || put.status == client::PutStatus::kPresent;
}

}  // namespace kvkeep::sick
