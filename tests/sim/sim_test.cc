#include <catch2/catch.hpp>

#include "tests/sim/simulation.h"

namespace kvkeep {

TEST_CASE("a seed replays exactly") {
  const SimulationOptions options{.seed = 42, .steps = 600};
  const SimulationReport first = RunSimulation(options);
  const SimulationReport second = RunSimulation(options);
  CHECK(first.digest == second.digest);
  CHECK(first.verified_bytes == second.verified_bytes);
  CHECK(RunSimulation({.seed = 43, .steps = 600}).digest != first.digest);
}

TEST_CASE("the simulation reaches what it is meant to test") {
  SimulationReport sum;
  for (uint64_t seed = 100; seed < 110; ++seed) {
    const SimulationReport report = RunSimulation({.seed = seed, .steps = 1500});
    sum.hits += report.hits;
    sum.kills += report.kills;
    sum.power_cuts += report.power_cuts;
    sum.promotions += report.promotions;
    sum.evictions += report.evictions;
    sum.durable += report.durable;
    sum.corrupt += report.corrupt;
    sum.recovered_in_g2 += report.recovered_in_g2;
    sum.interruptions += report.interruptions;
  }
  CHECK(sum.hits > 500);
  CHECK(sum.kills > 0);
  CHECK(sum.power_cuts > 0);
  CHECK(sum.promotions > 100);
  CHECK(sum.evictions > 100);
  CHECK(sum.durable > 10);
  CHECK(sum.corrupt > 0);
  CHECK(sum.recovered_in_g2 > 20);
  CHECK(sum.interruptions > 100);
}

}  // namespace kvkeep
