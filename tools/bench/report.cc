#include "tools/bench/report.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <unistd.h>

#include <algorithm>

#include "tools/bench/baselines.h"
#include "tools/kvkeep/print.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::bench {
namespace {

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kMissed:
      return "MISSED";
    case Verdict::kTold:
      return "told";
    case Verdict::kNotMeasured:
      break;
  }
  return "not measured";
}

std::string FormatCosts(const std::vector<CpuCost>& costs) {
  std::vector<std::vector<std::string>> rows = {
      {"CPU SECONDS A GB", "CLIENT", "DAEMON", "BOTH", "OF GB"}};
  for (const CpuCost& cost : costs) {
    rows.push_back(
        {cost.path, absl::StrFormat("%.3f", cost.client_seconds_per_gb),
         absl::StrFormat("%.3f", cost.daemon_seconds_per_gb),
         absl::StrFormat("%.3f", cost.client_seconds_per_gb + cost.daemon_seconds_per_gb),
         absl::StrFormat("%.1f", cost.gigabytes)});
  }
  return tools::FormatTable(rows);
}

std::string FormatTroubles(const Report& report) {
  std::string text;
  for (const Series& one : report.cases) {
    const Measured all = one.total();
    if (all.wrong_bytes > 0) {
      absl::StrAppend(&text, "WRONG BYTES: ", one.name, ": ", all.wrong_bytes, " of ",
                      all.verified_bytes, "\n");
    }
    if (all.failed_ops > 0) {
      absl::StrAppend(&text, "failed calls: ", one.name, ": ", all.failed_ops,
                      ", the first: ", all.first_failure, "\n");
    }
  }
  if (!report.failure.empty()) absl::StrAppend(&text, "failed: ", report.failure, "\n");
  return text;
}

}  // namespace

std::string FormatLines(const std::vector<Line>& lines) {
  std::vector<std::vector<std::string>> rows = {
      {"WHAT", "MEASURED", "BASELINE", "FIGURE", "WANTED", ""}};
  for (const Line& line : lines) {
    rows.push_back({line.what, line.measured, line.baseline, line.figure, line.target,
                    VerdictName(line.verdict)});
  }
  return tools::FormatTable(rows);
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

bool Report::sound() const {
  return failure.empty() && std::all_of(cases.begin(), cases.end(), [](const Series& one) {
           const Measured all = one.total();
           return all.wrong_bytes == 0 && all.failed_ops == 0 && all.ops > 0;
         });
}

bool Report::all_ok() const {
  return std::none_of(lines.begin(), lines.end(),
                      [](const Line& line) { return line.verdict == Verdict::kMissed; });
}

Json ToJson(const Report& report) {
  Json json = {{"options", ToJson(report.options)},
               {"machine",
                {{"cpus", sysconf(_SC_NPROCESSORS_ONLN)},
                 {"last_level_cache_bytes", LastLevelCacheBytes()}}},
               {"daemon", report.daemon},
               {"arena", report.arena},
               {"path", report.path},
               {"baseline_huge_page_bytes", report.baseline_huge_page_bytes},
               {"cases", Json::array()},
               {"baselines", Json::array()}};
  if (report.daemon_gpu_bytes) json["daemon_gpu_bytes"] = *report.daemon_gpu_bytes;
  for (const Series& one : report.cases) json["cases"].push_back(ToReport(one));
  for (const Series& one : report.baselines) json["baselines"].push_back(ToReport(one));
  if (!report.lines.empty()) json["table"] = ToJson(report.lines);
  for (const CpuCost& cost : report.cpu_costs) {
    json["cpu_costs"].push_back({{"path", cost.path},
                                 {"gigabytes", cost.gigabytes},
                                 {"client_seconds_per_gb", cost.client_seconds_per_gb},
                                 {"daemon_seconds_per_gb", cost.daemon_seconds_per_gb}});
  }
  if (!report.failure.empty()) json["failure"] = report.failure;
  json["sound"] = report.sound();
  return json;
}

std::string FormatReport(const Report& report) {
  std::string text;
  if (!report.path.empty()) absl::StrAppend(&text, "path: ", report.path, "\n");
  if (!report.arena.empty()) absl::StrAppend(&text, "arena: ", report.arena, "\n");
  if (report.daemon_gpu_bytes) {
    absl::StrAppend(&text, "the daemon took ", tools::FormatBytes(*report.daemon_gpu_bytes),
                    " of the GPU's memory\n");
  }
  if (report.baseline_huge_page_bytes > 0) {
    absl::StrAppend(&text, "baseline memory in huge pages: ", report.baseline_huge_page_bytes,
                    " bytes\n");
  }
  std::vector<const Series*> all;
  for (const auto* list : {&report.baselines, &report.cases}) {
    for (const Series& one : *list) all.push_back(&one);
  }
  absl::StrAppend(&text, "\n", FormatSeries(all), FormatTroubles(report));
  if (!report.lines.empty()) absl::StrAppend(&text, "\n", FormatLines(report.lines));
  if (!report.cpu_costs.empty()) absl::StrAppend(&text, "\n", FormatCosts(report.cpu_costs));
  return text;
}

}  // namespace kvkeep::bench
