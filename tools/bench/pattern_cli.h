// The options of kvkeep-bench that are about patterns of load.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/bench/pattern_request.h"

namespace kvkeep::bench {

void AddPatternOptions(CLI::App& app, PatternRequest* request);

}  // namespace kvkeep::bench
