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
    text += TroublesOf(one.name + ": ", all.wrong_bytes, all.verified_bytes, all.failed_ops,
                       all.first_failure);
  }
  if (!report.failure.empty()) absl::StrAppend(&text, "failed: ", report.failure, "\n");
  return text;
}

}  // namespace

bool Report::sound() const {
  return failure.empty() && std::all_of(cases.begin(), cases.end(), [](const Series& one) {
           const Measured all = one.total();
           return all.wrong_bytes == 0 && all.failed_ops == 0 && all.ops > 0;
         });
}

Json ToJson(const Report& report) {
  Json json = {{"options", FieldsToJson(report.options)},
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
    json["cpu_costs"].push_back(FieldsToJson(cost));
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
