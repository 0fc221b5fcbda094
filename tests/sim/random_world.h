// The worlds of the simulator: sizes, limits and faults drawn from a seed.
#pragma once

#include "tests/sim/world.h"

namespace kvkeep {

// Small tiers, so that everything is short of space. Half of the seeds are free of faults.
WorldOptions RandomWorld(uint64_t seed);
// Delays are no faults: such a world is held to more.
bool FreeOfFaults(const WorldOptions& options);

}  // namespace kvkeep
