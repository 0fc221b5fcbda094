#include "tools/bench/line.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/bench/statistics.h"
#include "tools/kvkeep/print.h"

namespace kvkeep::bench {
namespace {

const char* VerdictName(Verdict verdict) {
  static const char* const names[] = {"ok", "MISSED", "not measured", "told"};
  return names[static_cast<int>(verdict)];
}

std::string Short(double value) {
  if (std::abs(value) >= 1e6) return absl::StrFormat("%.3g million", value / 1e6);
  if (value == 0 || std::abs(value) >= 100) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.3g", value);
}

std::string WithUnit(double value, const std::string& unit) {
  return unit.empty() ? Short(value) : absl::StrCat(Short(value), " ", unit);
}

bool Holds(const Target& target, double value) {
  switch (target.bound) {
    case Bound::kNone:
      break;
    case Bound::kAtLeast:
      return value >= target.limit;
    case Bound::kAtMost:
      return value <= target.limit;
    case Bound::kAbove:
      return value > target.limit;
    case Bound::kBelow:
      return value < target.limit;
  }
  return false;
}

// `figures`, of `figure_unit`, are what is judged; `unit` is that of what they were made of.
Line Judge(std::string what, const std::vector<double>& figures, const std::string& figure_unit,
           const std::string& unit, const std::vector<double>& measured,
           const std::vector<double>& baseline, Target target) {
  static const char* const words[] = {"", "at least ", "at most ", "more than ", "less than "};
  const Summary summary = Summarize(figures);
  Line line{.what = std::move(what),
            .measured = WithUnit(Summarize(measured).median, unit),
            .figure = absl::StrCat(WithUnit(summary.median, figure_unit), " (", Short(summary.min),
                                   " to ", Short(summary.max), ")"),
            .numbers = {{"figure", summary.median},
                        {"figure_min", summary.min},
                        {"figure_max", summary.max},
                        {"figures", figures}}};
  if (target.bound != Bound::kNone) {
    line.target = words[static_cast<int>(target.bound)] + WithUnit(target.limit, figure_unit);
    line.numbers["limit"] = target.limit;
  }
  if (!figures.empty()) {
    line.verdict = target.bound == Bound::kNone     ? Verdict::kTold
                   : Holds(target, summary.median) ? Verdict::kOk
                                                    : Verdict::kMissed;
  }
  line.numbers["measured"] = measured;
  if (baseline.empty()) return line;
  line.baseline = WithUnit(Summarize(baseline).median, unit);
  line.numbers["baseline"] = baseline;
  return line;
}

}  // namespace

Line RatioLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               const std::vector<double>& baseline, Target target) {
  return Judge(std::move(what), Ratios(measured, baseline), "", unit, measured, baseline, target);
}

Line DifferenceLine(std::string what, const std::string& unit, const std::vector<double>& measured,
                    const std::vector<double>& baseline, Target target) {
  std::vector<double> differences(std::min(measured.size(), baseline.size()));
  for (size_t i = 0; i < differences.size(); ++i) differences[i] = measured[i] - baseline[i];
  return Judge(std::move(what), differences, unit, unit, measured, baseline, target);
}

Line PlainLine(std::string what, const std::string& unit, const std::vector<double>& measured,
               Target target) {
  return Judge(std::move(what), measured, unit, unit, measured, {}, target);
}

Line MissingLine(std::string what, std::string why) {
  return {.what = std::move(what), .figure = std::move(why)};
}

bool NoneMissed(const std::vector<Line>& lines) {
  return std::none_of(lines.begin(), lines.end(),
                      [](const Line& line) { return line.verdict == Verdict::kMissed; });
}

Json ToJson(const std::vector<Line>& lines) {
  Json json = Json::array();
  for (const Line& line : lines) {
    json.push_back({{"what", line.what},
                    {"measured", line.measured},
                    {"baseline", line.baseline},
                    {"figure", line.figure},
                    {"target", line.target},
                    {"verdict", VerdictName(line.verdict)},
                    {"numbers", line.numbers}});
  }
  return json;
}

std::string FormatLines(const std::vector<Line>& lines) {
  std::vector<std::vector<std::string>> rows = {
      {"WHAT", "MEASURED", "BASELINE", "FIGURE", "WANTED", ""}};
  for (const Line& line : lines) {
    rows.push_back({line.what, line.measured, line.baseline, line.figure, line.target,
                    VerdictName(line.verdict)});
  }
  return tools::FormatTable(rows);
}

std::string TroublesOf(const std::string& where, uint64_t wrong_bytes, uint64_t verified_bytes,
                       uint64_t failed_calls, const std::string& first_failure) {
  std::string text;
  if (wrong_bytes > 0) {
    absl::StrAppend(&text, "WRONG BYTES: ", where, wrong_bytes, " of ", verified_bytes, "\n");
  }
  if (failed_calls > 0) {
    absl::StrAppend(&text, "failed calls: ", where, failed_calls, ", the first: ", first_failure,
                    "\n");
  }
  return text;
}

}  // namespace kvkeep::bench
