// What a pattern's figures are held to, rate by rate. Pure functions.
//
// Promised is of pm1753, as long as what it asks of the drive is below what the drive reads, bursts
// included: no wait above 100 ms, and of a chunk's latency a p99 of at most four times that of
// prompts read alone. Of other rates, and of sessions, the same is told.
#pragma once

#include <vector>

#include "tools/bench/pattern_report.h"

namespace kvkeep::bench {

// Two lines for each rate.
std::vector<Line> JudgePattern(const PatternReport& report);

}  // namespace kvkeep::bench
