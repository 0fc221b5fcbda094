// The worlds of the simulator: sizes, limits and faults drawn from a seed.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/world.h"

namespace kvkeep {

// A world, and what happens in it besides the calls of clients.
struct Scenario {
  WorldOptions world;
  uint32_t namespaces = 1;         // of each tenant
  uint32_t parts = 1;              // of each namespace
  bool medium_rots = false;        // bits flip on the disk, blocks get the bytes of others
  bool memory_rots = false;        // so do bits of a G2 that outlives its process
  bool devices_vanish = false;     // under a running process; back after a restart, or a later one
  bool drives_lose_power = false;  // alone, under a process or between two
  bool devices_leave = false;      // from one process to the next
  bool devices_join = false;       // likewise, and come back while one runs
  bool index_stalls = false;       // commits end only much later
  bool quotas = false;             // of G3, other ones in each process
  bool tenants_change = false;     // the second one differs, or is gone, in each process
  bool objects_vanish = false;     // beyond the node, at any time
  bool capacities = false;         // of the tiers, changed while they are in use
};

// Small tiers, so that everything is short of space. Half of the seeds are free of faults.
// `without` names faults to leave out all the same (Removable), so that a failure can be narrowed
// down. `policy` is the eviction policy of both tiers.
Scenario RandomScenario(uint64_t seed, const std::vector<std::string>& without = {},
                        const std::string& policy = "lru");
const std::vector<std::string>& Removable();
// A slow, stuck or unattached device is no fault: such a world must meet more rules.
bool FreeOfFaults(const Scenario& scenario);
// Every failure is reported: no device returns or keeps wrong bytes and reports success, and none
// is unable to read. Acknowledged durable chunks survive a power cut. A drive that lies about syncs
// still counts as honest: the world knows its lies, and everything else must meet the rules.
bool Honest(const Scenario& scenario);

}  // namespace kvkeep
