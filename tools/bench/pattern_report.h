// What a pattern of load came to, for people and for machines, and what it is held to. Plain
// values; pure functions.
//
// Promised is of pm1753, as long as what it asks of the drive is below what the drive reads, bursts
// included: no wait above 100 ms, and of a chunk's latency a p99 of at most four times that of
// prompts read alone. Of other rates, and of sessions, the same is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/pattern_measured.h"
#include "tools/bench/pattern_request.h"
#include "tools/bench/line.h"

namespace kvkeep::bench {

struct PatternRun {
  PatternJob job;
  uint64_t distinct_chunks = 0;         // that the pattern is about
  double offered_bytes_per_second = 0;  // asked for, if all were there
  PatternMeasured alone;                // some prompts, one at a time, before the others came
  PatternMeasured loaded;               // all
  double daemon_cpu_seconds = 0;        // of the load
  uint64_t served_g2_chunks = 0, served_g3_chunks = 0;
  uint64_t promotions = 0, promotion_runs = 0;
  double device_bytes_per_second = 0;  // that its drive reads without it; 0: not measured

  uint64_t working_set_bytes() const { return WorkingSetBytes(job, distinct_chunks); }
  // Of what was there, by chunks.
  double from_nvme_share() const;
  // Of what the drive reads without us: all that was asked for; of that what it had to read, in a
  // burst, where there are some. 0: the drive was not measured.
  double offered_share_of_device() const;
  double peak_share_of_device() const;
  bool below_device_rate() const {
    return device_bytes_per_second > 0 && peak_share_of_device() <= 1;
  }
};

struct PatternReport {
  PatternRequest request;
  PatternModel model;
  std::string arena, daemon, path;  // as Report's
  uint64_t g2_bytes = 0, g3_bytes = 0;
  std::vector<PatternRun> runs;
  std::string device_why_not;  // why the drive was not measured; empty: it was
  std::vector<Line> lines;     // JudgePattern

  // No wrong byte, no failed call, no request that was not played.
  bool sound() const;
  bool all_ok() const { return NoneMissed(lines); }
  // What the daemon would have to be given for this to say something; empty: it was.
  std::string wants() const;
};

// Two lines for each rate.
std::vector<Line> JudgePattern(const PatternReport& report);

Json ToJson(const PatternReport& report);
std::string FormatPattern(const PatternReport& report);

}  // namespace kvkeep::bench
