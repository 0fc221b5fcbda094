#include "tools/bench/series.h"

#include <absl/strings/str_format.h>

#include <algorithm>

#include "tools/kvkeep/print.h"

namespace kvkeep::bench {
namespace {

std::string Number(double value) {
  if (value == 0) return "0";
  if (value >= 100) return absl::StrFormat("%.0f", value);
  return value >= 1 ? absl::StrFormat("%.2f", value) : absl::StrFormat("%.4f", value);
}

std::string Median(const std::vector<double>& values) { return Number(Summarize(values).median); }

}  // namespace

void DaemonUsage::Add(const DaemonUsage& other) {
  cpu_seconds += other.cpu_seconds;
  lock_acquisitions += other.lock_acquisitions;
  lock_held_ns += other.lock_held_ns;
  lock_held_ns_max = std::max(lock_held_ns_max, other.lock_held_ns_max);
  lock_worked_ns_max = std::max(lock_worked_ns_max, other.lock_worked_ns_max);
}

DaemonUsage UsageBetween(const DaemonStatus& before, const DaemonStatus& after) {
  return {.lock_acquisitions = after.Since(before, "lock_acquisitions"),
          .lock_held_ns = after.Since(before, "lock_held_ns"),
          .lock_held_ns_max = after.counter("lock_held_ns_max"),
          .lock_worked_ns_max = after.counter("lock_worked_ns_max")};
}

Measured Series::total() const {
  Measured all;
  for (const Measured& round : rounds) all.Add(round, /*side_by_side=*/false);
  return all;
}

Json ToReport(const Series& series) {
  Json report = {{"name", series.name}};
  if (!series.about.is_null()) report["about"] = series.about;
  report["rounds"] = series.rounds.size();
  const auto summary = [](const std::vector<double>& values) -> Json {
    const Summary s = Summarize(values);
    return {{"median", s.median}, {"min", s.min}, {"max", s.max}, {"spread", s.spread()}};
  };
  report["over_rounds"] = {{"ops_per_second", summary(series.OpsPerSecond())},
                           {"chunks_per_second", summary(series.ChunksPerSecond())},
                           {"gb_per_second", summary(series.GbPerSecond())},
                           {"p50_us", summary(series.LatencyUs(0.5))},
                           {"p99_us", summary(series.LatencyUs(0.99))},
                           {"p999_us", summary(series.LatencyUs(0.999))}};
  report["total"] = ToReport(series.total());
  if (series.has_daemon) {
    const DaemonUsage& used = series.daemon;
    report["daemon"] = {{"cpu_seconds", used.cpu_seconds},
                        {"lock_acquisitions", used.lock_acquisitions},
                        {"lock_held_ns", used.lock_held_ns},
                        {"lock_held_ns_max_since_start", used.lock_held_ns_max},
                        {"lock_worked_ns_max_since_start", used.lock_worked_ns_max}};
  }
  return report;
}

std::string FormatSeries(const std::vector<const Series*>& series) {
  std::vector<std::vector<std::string>> rows = {{"CASE", "GB/s", "OPS/s", "CHUNKS/s", "p50 us",
                                                 "p99 us", "p99.9 us", "SPREAD", "COPIED",
                                                 "CPU s CLIENT", "DAEMON", "LOCK us MEAN", "MAX"}};
  for (const Series* one : series) {
    const Measured all = one->total();
    const DaemonUsage& used = one->daemon;
    const double mean_us = used.lock_acquisitions == 0
                               ? 0
                               : static_cast<double>(used.lock_held_ns) / 1e3 /
                                     static_cast<double>(used.lock_acquisitions);
    rows.push_back(
        {one->name, Median(one->GbPerSecond()), Median(one->OpsPerSecond()),
         Median(one->ChunksPerSecond()), Median(one->LatencyUs(0.5)), Median(one->LatencyUs(0.99)),
         Median(one->LatencyUs(0.999)),
         absl::StrFormat("%.0f %%", 100 * Summarize(one->OpsPerSecond()).spread()),
         absl::StrFormat("%.2f GB", static_cast<double>(all.copied_bytes) / 1e9),
         absl::StrFormat("%.2f", all.client_cpu_seconds),
         one->has_daemon ? absl::StrFormat("%.2f", used.cpu_seconds) : "-",
         one->has_daemon ? absl::StrFormat("%.2f", mean_us) : "-",
         one->has_daemon ? Number(static_cast<double>(used.lock_held_ns_max) / 1e3) : "-"});
  }
  return tools::FormatTable(rows);
}

}  // namespace kvkeep::bench
