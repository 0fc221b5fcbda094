// The command line of kvkeep-bench: parses, runs, prints. main() without the process, for tests.
//
// Exit codes: 0 done; 1 failed, wrong bytes, or calls that failed; 2 wrong usage; with
// --fail-on-missed 3 when a line of the table is missed.
#pragma once

#include <absl/status/statusor.h>

#include <ostream>
#include <string>
#include <vector>

#include "tools/bench/options.h"

namespace kvkeep::bench {

// Numbers go to `out`, messages and progress to `err`. Forks: the process must not have touched
// gRPC.
int RunBench(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err,
             bool show_progress);

}  // namespace kvkeep::bench
