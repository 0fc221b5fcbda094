// kill -9 at random times under mixed load. KVKEEP_CRASH_CYCLES (kills in each of the three cases)
// makes it run longer, KVKEEP_CRASH_SEED repeats it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "tests/crash/rig.h"
#include "tests/e2e/arena_mounts.h"
#include "tests/fakes/from_environment.h"

namespace kvkeep::crash {
namespace {

constexpr uint64_t kCycles = e2e::kSanitized ? 3 : 10;
constexpr double kReadyMs = 60'000;

Settings LocalAndGrpc(const std::string& g3) {
  return {.g2 = "48MiB", .devices = {{.capacity = g3}}, .local = true};
}

void Run(const Settings& settings, RigOptions options) {
  options.seed = FromEnvironment("KVKEEP_CRASH_SEED", 1);
  const uint64_t cycles = FromEnvironment("KVKEEP_CRASH_CYCLES", kCycles);
  std::mt19937_64 random(options.seed);
  Rig rig(settings, options);
  INFO("seed " << options.seed);
  // More kills where the load was so slow that nothing had to survive, or nothing was evicted.
  const auto missing = [&] {
    const Figures sum = rig.Sum();
    return (options.keeps ? sum.survived : sum.g3_evictions) == 0;
  };
  for (uint64_t cycle = 0; cycle < cycles || (cycle < 4 * cycles && missing()); ++cycle) {
    INFO("cycle " << cycle);
    if (cycle % 4 == 3) rig.StartAndCutShort(milliseconds(1 + random() % 120));
    REQUIRE(rig.Start());
    rig.KillAfter(milliseconds(5 + random() % 796));
    rig.Judge();
  }
  REQUIRE(rig.Start());  // the last kill is checked, too
  rig.Finish();
  const Figures sum = rig.Sum();
  WARN("seed " << options.seed << " | " << sum.ToString());
  CHECK(sum.checked > 0);
  CHECK((!options.keeps || sum.survived > 0));
  CHECK((sum.g3_evictions > 0) != options.keeps);
  CHECK((e2e::kSanitized || sum.ready_ms.back() < kReadyMs));
}

}  // namespace

TEST_CASE("killed at random times: nothing wrong, and what was written back or durable is there") {
  Run(LocalAndGrpc("512MiB"), {});
}

TEST_CASE("killed at random times while G3 evicts: nothing wrong") {
  Run(LocalAndGrpc("64MiB"), {.keys = 80, .keeps = false});
}

TEST_CASE("killed at random times, with G2 on a mount: nothing wrong, nothing lost") {
  e2e::ArenaMounts arena;
  if (!arena.Make("size=128m,mode=0700")) return;
  Run(arena.With(LocalAndGrpc("512MiB")), {});
}

}  // namespace kvkeep::crash
