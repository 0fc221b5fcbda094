// Power cuts on a real file system: an ext4 on a disk with a volatile cache (tests/sick), whose
// unflushed sectors are dropped, cut short, reordered or torn at the cut. A chunk that was put
// durable and acknowledged is there after the next boot; every other chunk is whole or absent.
// KVKEEP_CRASH_CYCLES makes the test run longer, KVKEEP_CRASH_SEED repeats it.
#include <absl/strings/match.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "tests/crash/rig.h"
#include "tests/fakes/free_port.h"
#include "tests/fakes/from_environment.h"
#include "tests/sick/sick_site.h"

namespace kvkeep::crash {
namespace {

constexpr uint64_t kCycles = e2e::kSanitized ? 4 : 24;

// The next daemon finds another boot id, because its mount namespace has this file in the real
// one's place.
void ChangeBootId(Site& site, uint64_t boot) {
  const std::string file = site.path("boot_id");
  e2e::WriteFile(file, "00000000-0000-4000-8000-00000000" + std::to_string(1000 + boot) + "\n");
  site.before_exec = [name = file] {
    const bool done =
        unshare(CLONE_NEWNS) == 0 &&
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount(name.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0;
    if (!done) _exit(97);
  };
}

}  // namespace

TEST_CASE("power is cut under load: what is durable is there, all else is whole or absent") {
  if (!sick::CanBeSick()) return;
  const uint64_t seed = FromEnvironment("KVKEEP_CRASH_SEED", 1);
  const uint64_t cycles = FromEnvironment("KVKEEP_CRASH_CYCLES", kCycles);
  std::mt19937_64 random(seed);
  sick::SickDisk disk("448M");
  Rig rig({.g2 = "32MiB",
           .devices = {{.name = disk.dir() + "/g3", .capacity = "256MiB"}},
           .local = true},
          {.keys = 32, .tears = true, .seed = seed});
  uint64_t corrupt = 0, stale = 0;
  // More cuts where the load was so slow that nothing had to survive, or nothing was lost.
  const auto missing = [&] { return rig.Sum().survived == 0 || disk.lost_sectors() == 0; };
  uint64_t cycle = 0;
  for (;; ++cycle) {
    INFO("seed " << seed << ", cycle " << cycle);
    ChangeBootId(rig.site, cycle);
    REQUIRE(rig.Start());
    corrupt += rig.site.Counter("corrupt_chunks");
    stale += rig.site.Counter("stale_records");
    // The last cut was checked, too.
    if (cycle >= cycles && (cycle >= 4 * cycles || !missing())) break;
    std::this_thread::sleep_for(milliseconds(20 + random() % 600));  // under load
    rig.Judge();
    rig.NotePowerCut();
    if (cycle % 2 == 0) disk.HoldFlushes();  // the others come at random
    disk.CutPower(cycle % SICK_CUT_KINDS, random());
    rig.KillAfter(milliseconds(random() % 20));  // nothing may be acknowledged as durable now
    disk.Unmount();
    disk.Heal();
    disk.Mount();
    rig.CheckFilesAfterPowerCut();
    rig.Judge();
  }
  rig.Finish();
  const Figures sum = rig.Sum();
  WARN("seed " << seed << " | power cuts " << cycle << " | lost sectors " << disk.lost_sectors()
               << " | damaged, found out " << corrupt << " | stale records " << stale
               << " | fsck: damaged " << rig.bad_after_cuts() << " | " << sum.ToString());
  CHECK(disk.lost_sectors() > 0);
  CHECK(sum.survived > 0);
}

TEST_CASE("after a stop in order a power cut takes nothing, and no header is read") {
  if (!sick::CanBeSick()) return;
  sick::SickDisk disk("448M");
  const int metrics = FreePort();
  Site site({.g2 = "32MiB",
             .devices = {{.name = disk.dir() + "/g3", .capacity = "256MiB"}},
             .metrics = "127.0.0.1:" + std::to_string(metrics)});
  ChangeBootId(site, 1);
  site.Start();
  const std::vector<e2e::TestChunk> chunks = e2e::Chunks(1, 40, 400'000);
  REQUIRE(e2e::Engine(site).PutAll(chunks));  // not as durable ones
  site.Signal(SIGTERM);
  CHECK(site.AwaitEnd().exit_status == 0);
  disk.CutPower(SICK_CUT_DROP, 1);
  disk.Unmount();
  disk.Heal();
  disk.Mount();
  ChangeBootId(site, 2);
  site.Start();
  e2e::Engine engine(site);
  CHECK(engine.Find(chunks).g3 == chunks.size());
  for (const e2e::TestChunk& chunk : chunks) {
    CHECK(engine.Put(chunk, {.durable = true}).status == client::PutStatus::kPresent);
  }
  CHECK(absl::StrContains(e2e::HttpGet(metrics, "/metrics"),
                          "kvkeep_io_operations_total{kind=\"read\"} 0\n"));
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(engine.wrong_bytes == 0);
}

}  // namespace kvkeep::crash
