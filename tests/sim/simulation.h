// Simulation: random clients against the real store, with faults, crashes and power cuts, from one
// seed; a plain model judges every answer.
//
// Rules: a read returns the whole bytes of one put under that name (P1), and none that was deleted
// before the last crash; bytes held by a reader never change; every callback runs, unless the
// process died; capacity is never exceeded and nothing leaks (CheckInvariants and the books at the
// end); without faults, what was stored in G3 is there after a kill, what was durable after a power
// cut. Breaking one is a failed check, with the seed printed.
#pragma once

#include <cstdint>
#include <string>

namespace kvkeep {

struct SimulationOptions {
  uint64_t seed = 1;
  uint64_t steps = 2000;
  bool verbose = false;  // prints each step
};

struct SimulationReport {
  uint64_t steps = 0, puts = 0, reads = 0, hits = 0, verified_bytes = 0;
  uint64_t kills = 0, power_cuts = 0, corrupt = 0, promotions = 0, evictions = 0;
  uint64_t rejected = 0, durable = 0, recovered_in_g2 = 0, interruptions = 0;
  uint64_t digest = 0;  // of all that happened: equal for equal seeds
};

SimulationReport RunSimulation(const SimulationOptions& options);

}  // namespace kvkeep
