// One client of a daemon, in its process: loads chunks, makes the operations of cases and drives
// them, and plays patterns, as a LoadGenerator commands it. Free functions.
#pragma once

#include "tools/bench/child_process.h"
#include "tools/bench/client_target.h"
#include "tools/bench/operation.h"

namespace kvkeep::bench {

// Number `number` of so many clients that do the same. It connects by its first command.
ChildProcess::Handler MakeBenchClient(const ClientTarget& target, uint32_t number,
                                      uint32_t clients);

// What it does for a pattern (pattern_client.cc), by the commands of pattern_run.cc: an engine's
// worker with its share of the users, with as many threads as requests may be under way. `context`
// outlives it.
ChildProcess::Handler MakePatternPlayer(ClientContext* context);

}  // namespace kvkeep::bench
