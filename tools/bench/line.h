// Line: a figure that must hold, what came out, and the verdict. Made of values that were measured
// round by round: what counts is the median over rounds. Plain values; free functions.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/json_fields.h"

namespace kvkeep::bench {

// kTold: measured, and nothing is promised of it.
enum class Verdict { kOk, kMissed, kNotMeasured, kTold };

struct Line {
  std::string what;
  std::string measured;
  std::string baseline;
  std::string figure;  // what is compared with the target
  std::string target;
  Verdict verdict = Verdict::kNotMeasured;
  Json numbers;  // the same for machines
};

// kNone: nothing is promised.
enum class Bound { kNone, kAtLeast, kAtMost, kAbove, kBelow };

struct Target {
  Bound bound = Bound::kNone;
  double limit = 0;
};

// The median over rounds of measured / baseline.
Line RatioLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               const std::vector<double>& baseline, Target target = {});
// The median over rounds of measured - baseline.
Line DifferenceLine(std::string what, const std::string& unit, const std::vector<double>& measured,
                    const std::vector<double>& baseline, Target target = {});
// The median over rounds, as it is.
Line PlainLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               Target target = {});
// For what could not be measured here, and why.
Line MissingLine(std::string what, std::string why);

bool NoneMissed(const std::vector<Line>& lines);
Json ToJson(const std::vector<Line>& lines);
std::string FormatLines(const std::vector<Line>& lines);
// What went wrong, for people; empty: nothing. `where`: "", or "CASE: ".
std::string TroublesOf(const std::string& where, uint64_t wrong_bytes, uint64_t verified_bytes,
                       uint64_t failed_calls, const std::string& first_failure);

}  // namespace kvkeep::bench
