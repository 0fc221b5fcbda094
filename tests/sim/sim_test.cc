#include <catch2/catch.hpp>

#include "tests/sim/fleet/fleet_simulator.h"
#include "tests/sim/payload.h"
#include "tests/sim/random_world.h"
#include "tests/sim/script.h"
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

TEST_CASE("a run of the same steps replays exactly, and without some of them it is another one") {
  SimulationOptions options{.seed = 42, .only = {}};
  for (uint64_t step = 0; step < 400; step += 2) options.only.push_back(step);
  const SimulationReport first = RunSimulation(options);
  CHECK(first.steps == 200);
  CHECK(RunSimulation(options).digest == first.digest);
  options.only.erase(options.only.begin() + 50, options.only.begin() + 150);
  CHECK(RunSimulation(options).digest != first.digest);
}

TEST_CASE("a fleet's seed replays exactly, and its nodes meet in the bucket") {
  const SimulationOptions options{.seed = 5, .steps = 1500, .nodes = 3};
  const SimulationReport first = RunSimulation(options);
  CHECK(RunSimulation(options).digest == first.digest);
  CHECK(first.written_beyond > 0);
  CHECK(first.came_from_others > 0);
  CHECK(first.recalled > 0);
}

TEST_CASE("nodes of a fleet read from each other, with a bucket and without one") {
  bool with_bucket = false, without = false;
  for (uint64_t seed = 1; seed <= 40 && !(with_bucket && without); ++seed) {
    const FleetOptions fleet = RandomFleet(seed, 3, {}, "lru");
    bool& done = fleet.only_peers ? without : with_bucket;
    if (!fleet.peers || done) continue;
    INFO(seed);
    const SimulationOptions options{.seed = seed, .steps = 1500, .nodes = 3};
    const SimulationReport first = RunSimulation(options);
    CHECK(RunSimulation(options).digest == first.digest);
    CHECK(first.peer_bytes > 0);
    CHECK((first.written_beyond > 0) == !fleet.only_peers);
    done = true;
  }
  CHECK((with_bucket && without));
}

TEST_CASE("nodes of a fleet take what others offer") {
  uint64_t seed = 1;
  while (!RandomFleet(seed, 3, {}, "lru").offers) ++seed;
  INFO(seed);
  const SimulationReport report = RunSimulation({.seed = seed, .steps = 2000, .nodes = 3});
  CHECK(report.taken > 0);
  CHECK(report.taken < report.offered);
}

TEST_CASE("a bucket that does not answer changes nothing of what a node answers by itself") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    INFO(seed);
    const SimulationOptions options{.seed = seed, .steps = 1000, .nodes = 2};
    const SimulationReport none = RunFleet(options, FleetOptions::Bucket::kNone);
    const SimulationReport dead = RunFleet(options, FleetOptions::Bucket::kDead);
    CHECK(none.local_digest == dead.local_digest);
    CHECK(none.hits == dead.hits);
    CHECK(dead.came_from_others == 0);
  }
}

TEST_CASE("whatever is left out of a fleet, it runs") {
  for (const std::string& name : FleetRemovable()) {
    INFO(name);
    const SimulationOptions options{.seed = 2, .steps = 50, .without = {name}, .nodes = 3};
    CHECK(RunSimulation(options).steps == 50);
  }
}

TEST_CASE("whatever is left out of a world, it runs") {
  for (const std::string& name : Removable()) {
    INFO(name);
    CHECK(RunSimulation({.seed = 2, .steps = 50, .without = {name}}).steps == 50);
  }
  const SimulationReport none = RunSimulation({.seed = 2, .steps = 50, .without = Removable()});
  CHECK(none.injected.faults() == 0);
}

TEST_CASE("a failing run is shrunk to the steps and faults that it needs") {
  Script script{.seed = 9};
  for (uint64_t step = 0; step < 1000; ++step) script.steps.push_back(step);
  const auto failure = [](const Script& run) -> std::string {
    const auto has = [](const auto& list, const auto& what) {
      return std::find(list.begin(), list.end(), what) != list.end();
    };
    if (has(run.without, "delay") || !has(run.steps, 17u)) return "";
    return has(run.steps, 611u) && has(run.steps, 999u) ? "the one" : "another one";
  };
  const Script shrunk = Shrink(script, failure);
  CHECK(shrunk.seed == 9);
  CHECK(shrunk.steps == std::vector<uint64_t>{17, 611, 999});
  CHECK(shrunk.without.size() == Removable().size() - 1);
}

TEST_CASE("a script is read as it was written, and errors name the line") {
  const Script script{.seed = 77, .policy = "arc", .without = {"delay", "stuck"}, .steps = {3, 12}};
  const std::string text = FormatScript(script, {{12, "put 5 bytes 3000"}});
  CHECK(text == "seed 77\npolicy arc\nwithout delay stuck\nstep 3\nstep 12  put 5 bytes 3000\n");
  const absl::StatusOr<Script> read = ParseScript("# a comment\n" + text);
  REQUIRE(read.ok());
  CHECK(read->seed == 77);
  CHECK(read->Options().policy == "arc");
  CHECK(read->without == script.without);
  CHECK(read->steps == script.steps);
  const auto error = [](const std::string& wrong) {
    return std::string(ParseScript(wrong).status().message());
  };
  CHECK(error("seed 1\nstep x\n") == "line 2: 'x' is no number");
  CHECK(error("seed 1\nwithout luck\n") == "line 2: 'luck' is nothing that can be left out");
  CHECK(error("seed 1\npolicy luck\n") == "line 2: 'luck' is no policy");
  CHECK(error("nodes 100\n") == "line 1: nodes are 1 to 8");
  CHECK(error("nodes 2\nwithout drives_lie\n") ==
        "line 2: 'drives_lie' is nothing that can be left out");
  CHECK(error("jump 1\n") == "line 1: 'jump' is not known");
  CHECK(error("seed 1\n") == "there is no step in it");
}

TEST_CASE("payloads are told apart by any piece of them") {
  const auto payload = MakePayload(7, 3, 5'003);
  for (const size_t offset : {0u, 8u, 4'096u, 5'000u}) {
    const auto piece = std::span(payload).subspan(offset);
    CHECK(IsPayload(7, 3, offset, piece));
    CHECK_FALSE(IsPayload(7, 4, offset, piece));
    CHECK_FALSE(IsPayload(8, 3, offset, piece));
    CHECK_FALSE(IsPayload(7, 3, offset + 8, piece));
    auto flipped = std::vector(piece.begin(), piece.end());
    flipped.back() ^= std::byte{1};
    CHECK_FALSE(IsPayload(7, 3, offset, flipped));
  }
}

TEST_CASE("the simulation reaches what it is meant to test", "[figures]") {
  SimulationReport sum;
  for (uint64_t seed = 100; seed < 240; ++seed) {
    sum.Add(RunSimulation({.seed = seed, .steps = 1500}));
  }
  CHECK(sum.hits > 500);
  CHECK(sum.kills > 0);
  CHECK(sum.stops_in_order > 5);
  CHECK(sum.power_cuts > 0);
  CHECK(sum.promotions > 100);
  CHECK(sum.evictions > 100);
  CHECK(sum.windows > 10);
  CHECK(sum.durable > 10);
  CHECK(sum.corrupt > 0);
  CHECK(sum.recovered_in_g2 > 20);
  CHECK(sum.interruptions > 100);
  for (const Injected::Kind& kind : Injected::Kinds()) {
    INFO(kind.name);
    CHECK(sum.injected.*kind.count > 0);
  }
  CHECK(sum.durable_read > 5);
  CHECK(sum.promises_checked > 5);
  CHECK(sum.revoked > 10);
  CHECK(sum.attachments > 5);
  CHECK(sum.joins > 5);
  CHECK(sum.leaves > 5);
  CHECK(sum.capacities_set > 5);
  CHECK(sum.memory_came > 1000);
  CHECK(sum.tenant_changes > 20);
  CHECK(sum.recalled > 200);
  CHECK(sum.failed_recalls > 20);
  CHECK(sum.written_beyond > 500);
  CHECK(sum.bad_beyond > 10);
  CHECK(sum.returned > 5);
  CHECK(sum.encrypted > 100);
  CHECK(sum.in_quota > 20);
  CHECK(sum.events > 1000);
  CHECK(sum.event_restarts > 10);
  CHECK(sum.events_checked > 100);
  CHECK(sum.revived > sum.believed);
  CHECK(sum.believed > 0);
}

}  // namespace kvkeep
