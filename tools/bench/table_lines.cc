#include "tools/bench/table_lines.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <utility>

namespace kvkeep::bench {
namespace {

std::string Short(double value) {
  if (std::abs(value) >= 1e6) return absl::StrFormat("%.3g million", value / 1e6);
  if (value == 0 || std::abs(value) >= 100) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.3g", value);
}

std::string WithUnit(double value, const std::string& unit) {
  return unit.empty() ? Short(value) : absl::StrCat(Short(value), " ", unit);
}

std::string WithSpread(const Summary& summary, const std::string& unit) {
  return absl::StrCat(WithUnit(summary.median, unit), " (", Short(summary.min), " to ",
                      Short(summary.max), ")");
}

Line Judge(std::string what, const std::string& unit, const std::vector<double>& figures,
           const Target& target) {
  const Summary summary = Summarize(figures);
  Line line{.what = std::move(what),
            .figure = WithSpread(summary, unit),
            .target = target.ToString(unit)};
  if (!figures.empty()) {
    line.verdict = target.holds(summary.median) ? Verdict::kOk : Verdict::kMissed;
  }
  line.numbers = {{"figure", summary.median},
                  {"figure_min", summary.min},
                  {"figure_max", summary.max},
                  {"figures", figures},
                  {"limit", target.limit}};
  return line;
}

void Fill(Line* line, const std::string& unit, const std::vector<double>& measured,
          const std::vector<double>& baseline) {
  line->measured = WithUnit(Summarize(measured).median, unit);
  line->numbers["measured"] = measured;
  if (baseline.empty()) return;
  line->baseline = WithUnit(Summarize(baseline).median, unit);
  line->numbers["baseline"] = baseline;
}

}  // namespace

std::string Target::ToString(const std::string& unit) const {
  const char* const words[] = {"at least ", "at most ", "more than ", "less than "};
  return absl::StrCat(words[static_cast<int>(bound)], WithUnit(limit, unit));
}

bool Target::holds(double value) const {
  switch (bound) {
    case Bound::kAtLeast:
      return value >= limit;
    case Bound::kAtMost:
      return value <= limit;
    case Bound::kAbove:
      return value > limit;
    case Bound::kBelow:
      return value < limit;
  }
  return false;
}

Line RatioLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               const std::vector<double>& baseline, Target target) {
  Line line = Judge(std::move(what), "", Ratios(measured, baseline), target);
  Fill(&line, unit, measured, baseline);
  return line;
}

Line RatioLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               const std::vector<double>& baseline) {
  Line line = RatioLine(std::move(what), unit, measured, baseline, Target());
  if (line.verdict != Verdict::kNotMeasured) line.verdict = Verdict::kTold;
  line.target.clear();
  line.numbers.erase("limit");
  return line;
}

Line DifferenceLine(std::string what, const std::string& unit, const std::vector<double>& measured,
                    const std::vector<double>& baseline, Target target) {
  std::vector<double> differences;
  for (size_t i = 0; i < std::min(measured.size(), baseline.size()); ++i) {
    differences.push_back(measured[i] - baseline[i]);
  }
  Line line = Judge(std::move(what), unit, differences, target);
  Fill(&line, unit, measured, baseline);
  return line;
}

Line PlainLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               Target target) {
  Line line = Judge(std::move(what), unit, measured, target);
  Fill(&line, unit, measured, {});
  return line;
}

Line MissingLine(std::string what, std::string why) {
  return {.what = std::move(what), .figure = std::move(why)};
}

}  // namespace kvkeep::bench
