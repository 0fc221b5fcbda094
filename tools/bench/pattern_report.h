// What a pattern of load came to, for people and for machines. Plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/pattern_measured.h"
#include "tools/bench/pattern_request.h"
#include "tools/bench/report.h"
#include "tools/bench/series.h"

namespace kvkeep::bench {

struct PatternRun {
  PatternJob job;
  uint64_t distinct_chunks = 0;         // that the pattern is about
  double offered_bytes_per_second = 0;  // asked for, if all were there
  PatternMeasured alone;                // some prompts, one at a time, before the others came
  PatternMeasured loaded;               // all
  DaemonUsage daemon;                   // of the load
  uint64_t served_g2_chunks = 0, served_g3_chunks = 0;
  uint64_t promotions = 0, promotion_runs = 0;
  double device_bytes_per_second = 0;  // that its drive reads without it; 0: not measured

  uint64_t working_set_bytes() const { return WorkingSetBytes(job, distinct_chunks); }
  // Of what was there, by chunks.
  double from_nvme_share() const;
  // Of what the drive reads without us: all that was asked for, and of that what it had to read;
  // the latter in a burst, where there are some. 0: the drive was not measured.
  double offered_share_of_device() const;
  double nvme_share_of_device() const;
  double peak_share_of_device() const;
  bool below_device_rate() const {
    return device_bytes_per_second > 0 && peak_share_of_device() <= 1;
  }
  // Ways that a device's head would have gone, for each prefix that was not all in memory.
  double device_runs_per_prefix() const;
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
  bool all_ok() const;  // no line is missed
  // What the daemon would have to be given for this to say something; empty: it was.
  std::string wants() const;
};

Json ToJson(const PatternReport& report);
std::string FormatPattern(const PatternReport& report);

}  // namespace kvkeep::bench
