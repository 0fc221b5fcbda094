#include "tools/kvkeep/plan_view.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <map>

#include "tools/kvkeep/svg_chart.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

Json OrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json();
}
// Returns null for 0, which stands for unknown.
Json KnownOrNull(double value) { return value > 0 ? Json(value) : Json(); }

std::string Or(const std::optional<double>& value, int decimals, double scale = 1) {
  return value.has_value() ? absl::StrFormat("%.*f", decimals, *value * scale) : "-";
}

std::string Years(const std::optional<double>& years) {
  if (!years.has_value()) return "-";
  return *years > 100 ? "> 100 y" : absl::StrFormat("%.1f y", *years);
}

std::string SizeText(uint64_t bytes) { return bytes == 0 ? "none" : FormatBytes(bytes); }

Json FetchJson(const char* tier, const FetchVerdict& fetch) {
  return {{"tier", tier},
          {"bytes_per_second", fetch.bytes_per_second},
          {"seconds_per_1000_tokens", fetch.seconds_per_token * 1000},
          {"break_even_bytes_per_second", KnownOrNull(fetch.break_even_bytes_per_second)},
          {"times_faster", KnownOrNull(fetch.times_faster)},
          {"least_tokens", OrNull(fetch.least_tokens)}};
}

Json RowJson(const PlanRow& row) {
  return {{"g2_bytes", row.prediction.size.g2_bytes},
          {"g3_bytes", row.prediction.size.g3_bytes},
          {"hit_ratio", row.prediction.hit_ratio},
          {"g2_hit_ratio", row.prediction.g2_hit_ratio},
          {"written_bytes_per_day", OrNull(row.written_bytes_per_day)},
          {"drive_years", OrNull(row.drive_years)},
          {"tokens_saved_per_day", OrNull(row.tokens_saved_per_day)},
          {"requests_saved_per_day", OrNull(row.requests_saved_per_day)},
          {"gpu_hours_saved_per_day", OrNull(row.gpu_hours_saved_per_day)},
          {"joules_saved_per_day", OrNull(row.joules_saved_per_day)},
          {"dollars_saved_per_day", OrNull(row.dollars_saved_per_day)},
          {"tier_dollars_per_day", OrNull(row.tier_dollars_per_day)},
          {"daemon_cores", row.cores.has_value() ? Json(row.cores->daemon) : Json()},
          {"client_cores", row.cores.has_value() ? Json(row.cores->clients) : Json()}};
}

// Returns the points between the first and the last distance of the curve.
std::vector<std::pair<double, double>> CurvePoints(const ReuseCurve& curve) {
  size_t first = 0, last = ReuseCurve::kBuckets;
  while (first < last && curve.at[first] == 0) ++first;
  while (last > first && curve.at[last - 1] == 0) --last;
  std::vector<std::pair<double, double>> points;
  for (size_t i = first == 0 ? 0 : first - 1; i < last; ++i) {
    points.emplace_back(ReuseCurve::BoundOf(i), curve.HitRatio(ReuseCurve::BoundOf(i)));
  }
  return points;
}

double SmallestG2(const Plan& plan) {
  uint64_t least = UINT64_MAX;
  for (const PlanRow& row : plan.rows) least = std::min(least, row.prediction.size.g2_bytes);
  return static_cast<double>(least);
}

std::string Head(const Plan& plan) {
  const PlanWorkload& work = plan.workload;
  std::string text = absl::StrFormat(
      "%s: %.0f requests, %.0f chunks of %s wanted, in %.2f h; the largest cache hits %.1f%%\n",
      plan.source, work.requests, work.wanted_chunks,
      FormatBytes(static_cast<uint64_t>(work.chunk_bytes)), work.seconds / 3600,
      100 * plan.curve.HitRatio(1e19));
  absl::StrAppend(&text, plan.method == "simulate" ? "simulated, " : "by sampled reuse distances, ",
                  plan.policies, "\n");
  if (!plan.model.empty()) {
    absl::StrAppend(&text, "model ", plan.model, ", ", plan.assumptions.deployment.gpus, " x ",
                    plan.gpu.empty() ? "GPU" : plan.gpu, "\n");
  }
  if (plan.now.has_value()) {
    absl::StrAppendFormat(
        &text, "now, with G2 of %s and G3 of %s: measured %.1f%%, predicted %.1f%%\n",
        SizeText(plan.now->predicted.size.g2_bytes), SizeText(plan.now->predicted.size.g3_bytes),
        100 * plan.now->measured_hit_ratio, 100 * plan.now->predicted.hit_ratio);
  }
  return text;
}

std::string FetchText(const Plan& plan) {
  const double rate = plan.assumptions.deployment.prefill_tokens_per_second;
  if (rate <= 0) return "";
  std::vector<std::vector<std::string>> rows = {
      {"FETCH FROM", "GB/S", "MS PER 1000 TOKENS", "RECOMPUTED IN", "BREAK EVEN GB/S", "WORTH IT"}};
  for (const auto& [tier, fetch] : {std::pair("G2", plan.assumptions.g2_fetch()),
                                    std::pair("G3", plan.assumptions.g3_fetch())}) {
    rows.push_back({tier, absl::StrFormat("%.1f", fetch.bytes_per_second / 1e9),
                    absl::StrFormat("%.2f", fetch.seconds_per_token * 1e6),
                    absl::StrFormat("%.2f", 1e6 / rate),
                    absl::StrFormat("%.2f", fetch.break_even_bytes_per_second / 1e9),
                    fetch.pays() ? absl::StrFormat("%.1f times faster, from %.0f tokens on",
                                                   fetch.times_faster, *fetch.least_tokens)
                                 : absl::StrFormat("no: %.2f times as fast", fetch.times_faster)});
  }
  return FormatTable(rows) + "\n";
}

}  // namespace

Json PlanJson(const Plan& plan) {
  const PlanDeployment& deployment = plan.assumptions.deployment;
  const PlanWorkload& work = plan.workload;
  Json rows = Json::array(), curve = Json::array();
  for (const PlanRow& row : plan.rows) rows.push_back(RowJson(row));
  for (const auto& [bytes, ratio] : CurvePoints(plan.curve)) {
    curve.push_back(Json::object({{"bytes", bytes}, {"hit_ratio", ratio}}));
  }
  Json now;
  if (plan.now.has_value()) {
    now = {{"g2_bytes", plan.now->predicted.size.g2_bytes},
           {"g3_bytes", plan.now->predicted.size.g3_bytes},
           {"predicted_hit_ratio", plan.now->predicted.hit_ratio},
           {"measured_hit_ratio", plan.now->measured_hit_ratio}};
  }
  return {{"source", plan.source},
          {"method", plan.method},
          {"policies", plan.policies},
          {"workload",
           {{"seconds", work.seconds},
            {"days_counted_as", work.days()},
            {"requests", work.requests},
            {"wanted_chunks", work.wanted_chunks},
            {"chunk_bytes", work.chunk_bytes},
            {"tokens_per_chunk", KnownOrNull(work.tokens_per_chunk)},
            {"highest_hit_ratio", plan.curve.HitRatio(1e19)}}},
          {"model",
           {{"name", plan.model},
            {"source", plan.model_from},
            {"kv_bytes_per_token", KnownOrNull(deployment.kv_bytes_per_token)},
            {"prefill_tokens_per_second", KnownOrNull(deployment.prefill_tokens_per_second)},
            {"gpus", deployment.gpus},
            {"gpu", plan.gpu},
            {"gpu_source", plan.gpu_from}}},
          {"fetch",
           {FetchJson("g2", plan.assumptions.g2_fetch()),
            FetchJson("g3", plan.assumptions.g3_fetch())}},
          {"cpu", {{"transport", plan.assumptions.transport}, {"origin", KnownCpuCosts().origin}}},
          {"now", now},
          {"sizes", rows},
          {"g4", plan.g4.has_value() ? PlanG4Json(*plan.g4) : Json()},
          {"curve", curve}};
}

std::string PlanText(const Plan& plan) {
  std::vector<std::vector<std::string>> rows = {{"G2", "G3", "HITS", "FROM G2", "WRITTEN GB/DAY",
                                                 "DRIVES LAST", "MTOKENS SAVED/DAY", "REQUESTS/DAY",
                                                 "GPU H/DAY", "MJ/DAY", "$ SAVED/DAY",
                                                 "$ TIERS/DAY", "CORES DAEMON", "ENGINES"}};
  for (const PlanRow& row : plan.rows) {
    const PlanPrediction& of = row.prediction;
    rows.push_back({SizeText(of.size.g2_bytes), SizeText(of.size.g3_bytes),
                    absl::StrFormat("%.1f%%", 100 * of.hit_ratio),
                    absl::StrFormat("%.1f%%", 100 * of.g2_hit_ratio),
                    Or(row.written_bytes_per_day, 0, 1e-9), Years(row.drive_years),
                    Or(row.tokens_saved_per_day, 1, 1e-6), Or(row.requests_saved_per_day, 0),
                    Or(row.gpu_hours_saved_per_day, 2), Or(row.joules_saved_per_day, 1, 1e-6),
                    Or(row.dollars_saved_per_day, 2), Or(row.tier_dollars_per_day, 2),
                    row.cores.has_value() ? absl::StrFormat("%.2g", row.cores->daemon) : "-",
                    row.cores.has_value() ? absl::StrFormat("%.2g", row.cores->clients) : "-"});
  }
  // Drops columns whose values are all unknown.
  for (size_t column = rows[0].size(); column-- > 2;) {
    const bool unknown = std::all_of(rows.begin() + 1, rows.end(),
                                     [&](const auto& row) { return row[column] == "-"; });
    if (!unknown) continue;
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  return absl::StrCat(Head(plan), "\n", FetchText(plan), FormatTable(rows),
                      plan.g4.has_value() ? absl::StrCat("\n", PlanG4Text(*plan.g4)) : "");
}

std::string PlanChart(const Plan& plan) {
  std::map<uint64_t, ChartLine> by_g3, by_g2;
  for (const PlanRow& row : plan.rows) {
    const PlanSize& size = row.prediction.size;
    ChartLine& hits = by_g3[size.g3_bytes];
    hits.name = absl::StrCat("G3 ", SizeText(size.g3_bytes));
    hits.points.emplace_back(static_cast<double>(size.g2_bytes), 100 * row.prediction.hit_ratio);
    if (!row.written_bytes_per_day.has_value()) continue;
    ChartLine& written = by_g2[size.g2_bytes];
    written.name = absl::StrCat("G2 ", FormatBytes(size.g2_bytes));
    written.points.emplace_back(static_cast<double>(size.g3_bytes),
                                *row.written_bytes_per_day / 1e9);
  }
  std::vector<ChartPanel> panels = {
      {.title = "Prefix hit ratio, %", .x_label = "size of G2; dashed: of one LRU tier"}};
  for (auto& [g3, line] : by_g3) panels[0].lines.push_back(std::move(line));
  ChartLine one{.name = "one tier, LRU", .dashed = true};
  const double from = plan.rows.empty() ? 0 : SmallestG2(plan) / 4;
  for (const auto& [bytes, ratio] : CurvePoints(plan.curve)) {
    if (bytes >= from) one.points.emplace_back(bytes, 100 * ratio);
  }
  if (!one.points.empty()) panels[0].lines.push_back(std::move(one));
  if (!by_g2.empty()) {
    panels.push_back({.title = "Written to NVMe, GB a day", .x_label = "size of G3"});
    for (auto& [g2, line] : by_g2) panels[1].lines.push_back(std::move(line));
  }
  return DrawChart(absl::StrCat("kvkeep plan: ", plan.source,
                                plan.model.empty() ? "" : absl::StrCat(", ", plan.model)),
                   panels);
}

}  // namespace kvkeep::tools
