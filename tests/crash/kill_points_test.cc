// The daemon kills itself (KVKEEP_KILL_AT) at each of its named points: at least three times each
// (once under sanitizers), at the first visit and at later ones, under mixed load. The next start
// must find everything that had to survive, and nothing else.
#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "tests/crash/rig.h"
#include "tests/e2e/arena_mounts.h"
#include "tests/fakes/from_environment.h"

namespace kvkeep::crash {
namespace {

constexpr milliseconds kPatience{300'000};
constexpr uint64_t kRounds = e2e::kSanitized ? 1 : 3;

struct Point {
  const char* name;
  const char* where;
};
constexpr Point kLoadPoints[] = {
    {"seal", "a put's bytes are in G2, nobody sees them"},
    {"mark-set", "before the mark that lets a restart take the image from G2"},
    {"mark-was-set", "after it"},
    {"sealed", "the chunk is visible, its writer not answered"},
    {"data-written", "the image is on the device, no index knows it"},
    {"index-commit", "before a batch of adds"},
    {"index-committed", "after it, before the states tell"},
    {"removal-commit", "before a batch that removes records"},
    {"removal-committed", "after it, before the extents are free"},
    {"stable-mark", "data and log are synced, the mark that says so is not written"},
    {"stable-marked", "it is, no waiter of a durable put was answered"},
    {"mark-clear", "before the mark of an image in G2 that goes"},
    {"mark-cleared", "after it"},
    {"lease-granted", "a lease is granted, the client not answered"},
};
constexpr Point kFormatPoints[] = {
    {"data-file", "a data file is allocated, not labelled"},
    {"superblock-written", "the new superblock has not its name yet"},
    {"superblock-renamed", "it has, the directory is not synced"},
};

// For starts during its life.
class KillAt {
 public:
  KillAt(const std::string& point, uint64_t visit) {
    setenv("KVKEEP_KILL_AT", (point + ":" + std::to_string(visit)).c_str(), 1);
  }
  ~KillAt() { unsetenv("KVKEEP_KILL_AT"); }
};

Settings SmallSettings() {
  return {.g2 = "48MiB", .devices = {{.capacity = "512MiB"}}, .local = true};
}

// The first visit, then later and later ones.
uint64_t Visit(int round, std::mt19937_64& random) {
  return round == 0 ? 1 : 1 + random() % (20 * static_cast<uint64_t>(round));
}

}  // namespace

TEST_CASE("killed at every named point: nothing wrong, and what had to survive is there") {
  e2e::ArenaMounts arena;
  if (!arena.Make("size=128m,mode=0700")) return;
  const uint64_t seed = FromEnvironment("KVKEEP_CRASH_SEED", 1);
  const int rounds = static_cast<int>(FromEnvironment("KVKEEP_CRASH_ROUNDS", kRounds));
  std::mt19937_64 random(seed);
  Rig rig(arena.With(SmallSettings()), {.seed = seed});
  // Where all is slow, the daemon may be killed before anything had to survive: then later visits.
  const auto goes_on = [&](int round) {
    return round < rounds || (round < rounds + 3 && rig.Sum().survived == 0);
  };
  for (int round = 0; goes_on(round); ++round) {
    for (const Point& point : kLoadPoints) {
      const uint64_t visit = Visit(round, random);
      INFO("seed " << seed << ", point " << point.name << ":" << visit << ": " << point.where);
      {
        const KillAt kill_at(point.name, visit);
        rig.Start();  // false if the start itself passes there that often
      }
      REQUIRE(rig.AwaitItsEnd(kPatience));
      rig.Judge();
    }
  }
  REQUIRE(rig.Start());
  rig.Finish();
  const Figures sum = rig.Sum();
  WARN("seed " << seed << " | each of " << std::size(kLoadPoints) << " points at least " << rounds
               << " times | " << sum.ToString());
  CHECK(sum.survived > 0);
}

TEST_CASE("killed while a device grows: all that was there still is, and the next start grows it") {
  Rig rig(SmallSettings(), {});
  REQUIRE(rig.Start());
  rig.KillAfter(milliseconds(500));
  uint64_t mib = 512;
  // As above.
  const auto goes_on = [&](uint64_t round) {
    return round < kRounds || (round < 4 * kRounds && rig.Sum().survived == 0);
  };
  for (uint64_t round = 0; goes_on(round); ++round) {
    for (const Point& point : kFormatPoints) {
      INFO(point.name << ": " << point.where);
      rig.site.settings.devices[0].capacity = std::to_string(mib += 32) + "MiB";
      {
        const KillAt kill_at(point.name, 1);
        rig.StartAndDie();
      }
      REQUIRE(rig.Start());
      CHECK(rig.site.Status().devices(0).capacity_bytes() == mib << 20);
      rig.KillAfter(milliseconds(50));
      rig.Judge();
    }
  }
  REQUIRE(rig.Start());
  rig.Finish();
  const Figures sum = rig.Sum();
  WARN("growth | " << sum.ToString());
  CHECK(sum.survived > 0);
}

TEST_CASE("killed while a device is formatted: the next start does it again") {
  Figures sum;
  for (int round = 0; round < 3; ++round) {
    for (const Point& point : kFormatPoints) {
      INFO(point.name << ": " << point.where);
      Rig rig(SmallSettings(), {});
      {
        const KillAt kill_at(point.name, 1);
        rig.StartAndDie();
      }
      REQUIRE(rig.Start());
      rig.KillAfter(milliseconds(50));
      REQUIRE(rig.Start());
      rig.Finish();
      sum.Add(rig.Sum());
    }
  }
  WARN("format | " << sum.ToString());
}

}  // namespace kvkeep::crash
