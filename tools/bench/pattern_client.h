// What a client does for a pattern, in its process: the commands of pattern_run.cc. There it is an
// engine's worker with its share of the users, with as many threads as requests may be under way.
#pragma once

#include "tools/bench/child_process.h"
#include "tools/bench/operation.h"

namespace kvkeep::bench {

// `context` outlives it.
ChildProcess::Handler MakePatternPlayer(ClientContext* context);

}  // namespace kvkeep::bench
