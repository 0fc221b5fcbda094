// Lines of the table from values that were measured round by round. Free functions.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace kvkeep::bench {

enum class Bound { kAtLeast, kAtMost, kAbove, kBelow };

struct Target {
  Bound bound = Bound::kAtLeast;
  double limit = 0;
  std::string ToString(const std::string& unit) const;
  bool holds(double value) const;
};

// The median over rounds of measured / baseline.
Line RatioLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               const std::vector<double>& baseline, Target target);
// The same where nothing is promised.
Line RatioLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               const std::vector<double>& baseline);
// The median over rounds of measured - baseline.
Line DifferenceLine(std::string what, const std::string& unit, const std::vector<double>& measured,
                    const std::vector<double>& baseline, Target target);
// The median over rounds, as it is.
Line PlainLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               Target target);
// For what could not be measured here, and why.
Line MissingLine(std::string what, std::string why);

}  // namespace kvkeep::bench
