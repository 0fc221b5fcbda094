#include "tools/bench/pattern_verdict.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <string>
#include <utility>

#include "tools/bench/table_lines.h"

namespace kvkeep::bench {
namespace {

constexpr double kMostOfAloneP99 = 4;

double P99Ms(const PatternMeasured& measured) {
  return static_cast<double>(measured.chunk.Quantile(0.99)) / 1e6;
}

// The rate, and how much that is of the drive's: in bursts, where there are some.
std::string Where(const PatternReport& report, const PatternRun& run) {
  const std::string rate = absl::StrFormat("%s at %g requests/s", report.request.name,
                                           run.job.pattern.requests_per_second);
  if (run.device_bytes_per_second <= 0) {
    return absl::StrCat(rate, " (the drive's rate is not known)");
  }
  return absl::StrFormat("%s (at most %.0f %% of the drive's rate)", rate,
                         100 * run.peak_share_of_device());
}

Line Told(Line line) {
  if (line.verdict != Verdict::kNotMeasured) line.verdict = Verdict::kTold;
  line.target.clear();
  line.numbers.erase("limit");
  return line;
}

}  // namespace

std::vector<Line> JudgePattern(const PatternReport& report) {
  std::vector<Line> lines;
  for (const PatternRun& run : report.runs) {
    const bool promised = !IsClosedLoop(run.job.pattern.kind) && run.below_device_rate();
    const std::string where = Where(report, run);
    Line stalls = PlainLine(where + ": waits above 100 ms", "",
                            {static_cast<double>(run.loaded.stalls)}, {Bound::kAtMost, 0});
    Line p99 = RatioLine(where + ": p99 of a chunk against alone", "ms", {P99Ms(run.loaded)},
                         {P99Ms(run.alone)}, {Bound::kAtMost, kMostOfAloneP99});
    for (Line* line : {&stalls, &p99}) {
      line->numbers["requests_per_second"] = run.job.pattern.requests_per_second;
      lines.push_back(promised ? std::move(*line) : Told(std::move(*line)));
    }
  }
  return lines;
}

}  // namespace kvkeep::bench
