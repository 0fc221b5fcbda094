// One client of a daemon, in its process: loads chunks, makes the operations of cases and drives
// them, and plays patterns, as a LoadGenerator commands it. Free functions.
#pragma once

#include "tools/bench/child_process.h"
#include "tools/bench/client_target.h"

namespace kvkeep::bench {

// Number `number` of so many clients that do the same. It connects by its first command.
ChildProcess::Handler MakeBenchClient(const ClientTarget& target, uint32_t number,
                                      uint32_t clients);

}  // namespace kvkeep::bench
