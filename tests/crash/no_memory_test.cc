// Allocations fail under mixed load: the running daemon's address space is cut to little more than
// it has. It goes on, or ends at once; it never hangs, and what it kept is right.
// KVKEEP_CRASH_CYCLES makes the test run longer, KVKEEP_CRASH_SEED repeats it.
#include <array>
#include <catch2/catch.hpp>
#include <random>

#include "tests/crash/rig.h"
#include "tests/fakes/from_environment.h"
#include "tiers/base/units.h"

namespace kvkeep::crash {
namespace {

constexpr uint64_t kCycles = 8;
constexpr milliseconds kWatched{500};  // how long it runs on if it does not end
// Added to the space that it has.
constexpr std::array<uint64_t, 6> kSpare = {0, 64 * kKiB, 0, 1 * kMiB, 256 * kKiB, 4 * kMiB};

}  // namespace

TEST_CASE("allocations that fail under load: it goes on or ends at once, nothing wrong or lost") {
  const uint64_t seed = FromEnvironment("KVKEEP_CRASH_SEED", 1);
  const uint64_t cycles = FromEnvironment("KVKEEP_CRASH_CYCLES", kCycles);
  std::mt19937_64 random(seed);
  Rig rig({.g2 = "48MiB", .devices = {{.capacity = "512MiB"}}, .local = true}, {.seed = seed});
  uint64_t ended = 0, refused = 0, unharmed = 0;
  INFO("seed " << seed);
  // More cuts if the load was so slow that none had an effect, or nothing had to survive.
  const auto missing = [&] { return ended + refused == 0 || rig.Sum().survived == 0; };
  for (uint64_t cycle = 0; cycle < cycles || (cycle < 4 * cycles && missing()); ++cycle) {
    const uint64_t spare = kSpare[(seed + cycle) % kSpare.size()];
    INFO("cycle " << cycle << ", " << spare << " bytes to spare");
    REQUIRE(rig.Start());
    const AfterCut after = rig.CutMemoryAfter(milliseconds(1 + random() % 150), spare, kWatched);
    ended += after == AfterCut::kEnded;
    refused += after == AfterCut::kRefused;
    unharmed += after == AfterCut::kUnharmed;
    rig.Judge();
  }
  REQUIRE(rig.Start());  // what the last daemon left is checked, too
  rig.Finish();
  const Figures sum = rig.Sum();
  WARN("seed " << seed << " | ended " << ended << " | refused and went on " << refused
               << " | unharmed " << unharmed << " | " << sum.ToString());
  CHECK(ended + refused > 0);  // otherwise no failed allocation was noticed
  CHECK(sum.survived > 0);
}

}  // namespace kvkeep::crash
