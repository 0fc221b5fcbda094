#include "tools/kvkeep/plan_g4.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <cmath>

#include "tiers/base/image.h"
#include "tiers/remote/bucket_source.h"
#include "tiers/remote/prefix_search.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

constexpr double kDaysPerMonth = kDaysPerYear / 12;
constexpr double kBytesPerGib = 1 << 30;

double ReadsOfChunk(double chunk_bytes) {
  const BucketSourceOptions source;
  if (chunk_bytes <= static_cast<double>(source.whole_up_to)) return 1;
  return std::ceil(chunk_bytes / static_cast<double>(source.part_bytes));
}

std::string BytesText(double bytes) { return FormatBytes(static_cast<uint64_t>(bytes)); }

Json OptionalJson(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json();
}

}  // namespace

uint64_t QuestionsOfSearch(uint64_t wanted, uint64_t there) {
  PrefixSearch search(wanted, BucketSourceOptions{}.search);
  for (auto round = search.NextRound(); !round.empty(); round = search.NextRound()) {
    for (const size_t position : round) search.Tell(position, position < there);
  }
  return search.questions();
}

std::vector<SimulatedBucket> MakePlanBuckets(const G4Assumptions& assumptions, double days,
                                             double seconds) {
  const double shorter = seconds / (days * kSecondsPerDay);  // a second of the trace for a real one
  const auto lifetime = std::chrono::milliseconds(
      static_cast<int64_t>(assumptions.lifetime_days * kSecondsPerDay * 1000 * shorter));
  std::vector<SimulatedBucket> buckets;
  for (const bool second_use : {false, true}) {
    buckets.emplace_back(BucketOptions{
        .lifetime = lifetime, .second_use = second_use, .questions = QuestionsOfSearch});
  }
  return buckets;
}

G4Row G4RowOf(const PlanWorkload& workload, const PlanAssumptions& assumptions,
              const G4Assumptions& g4, const PlanPrediction& prediction,
              const SimulatedBucket& bucket) {
  const BucketResult& result = bucket.result();
  G4Row row{.size = prediction.size, .admission = bucket.second_use() ? "second_use" : "all"};
  const double times = kDaysPerMonth / workload.days();
  const auto month = [times](uint64_t counted) { return static_cast<double>(counted) * times; };
  row.hit_ratio = static_cast<double>(result.leading_hit_chunks) / workload.wanted_chunks;
  row.g4_hit_ratio = row.hit_ratio - prediction.hit_ratio;
  row.puts = month(result.writes);
  row.gets = month(result.questions) +
             month(result.recalled_chunks) * ReadsOfChunk(workload.chunk_bytes);
  row.written_bytes = month(result.written_chunks) * workload.chunk_bytes;
  row.read_bytes = month(result.recalled_chunks) * workload.chunk_bytes +
                   month(result.questions) * static_cast<double>(kHeaderBytes);
  row.stored_bytes = row.written_bytes / kDaysPerMonth * g4.lifetime_days;
  row.dollars = row.puts / 1000 * g4.prices.put_dollars_per_1000 +
                row.gets / 1000 * g4.prices.get_dollars_per_1000 +
                row.stored_bytes / kBytesPerGib * g4.prices.storage_dollars_per_gib_month +
                row.read_bytes / kBytesPerGib * g4.prices.traffic_dollars_per_gib;
  if (assumptions.deployment.prefill_tokens_per_second <= 0) return row;
  const double tokens_per_day =
      row.g4_hit_ratio * workload.wanted_chunks * workload.tokens_per_chunk / workload.days();
  const PlanSavings saved = SavingsOf(assumptions.deployment, assumptions.prices, tokens_per_day);
  row.gpu_hours_saved = saved.gpu_hours_per_day * kDaysPerMonth;
  if (saved.dollars_per_day.has_value()) row.dollars_saved = *saved.dollars_per_day * kDaysPerMonth;
  return row;
}

Json PlanG4Json(const PlanG4& g4) {
  Json rows = Json::array();
  for (const G4Row& row : g4.rows) {
    rows.push_back({{"g2_bytes", row.size.g2_bytes},
                    {"g3_bytes", row.size.g3_bytes},
                    {"admission", row.admission},
                    {"hit_ratio", row.hit_ratio},
                    {"g4_hit_ratio", row.g4_hit_ratio},
                    {"put_requests_per_month", row.puts},
                    {"get_requests_per_month", row.gets},
                    {"written_bytes_per_month", row.written_bytes},
                    {"read_bytes_per_month", row.read_bytes},
                    {"stored_bytes", row.stored_bytes},
                    {"dollars_per_month", row.dollars},
                    {"gpu_hours_saved_per_month", OptionalJson(row.gpu_hours_saved)},
                    {"dollars_saved_per_month", OptionalJson(row.dollars_saved)}});
  }
  const G4Prices& prices = g4.assumptions.prices;
  return {{"lifetime_days", g4.assumptions.lifetime_days},
          {"put_dollars_per_1000", prices.put_dollars_per_1000},
          {"get_dollars_per_1000", prices.get_dollars_per_1000},
          {"storage_dollars_per_gib_month", prices.storage_dollars_per_gib_month},
          {"traffic_dollars_per_gib", prices.traffic_dollars_per_gib},
          {"sizes", std::move(rows)}};
}

std::string PlanG4Text(const PlanG4& g4) {
  std::vector<std::vector<std::string>> rows = {
      {"G2", "G3", "G4 ADMISSION", "HITS", "BY G4", "PUTS/MONTH", "GETS/MONTH", "WRITTEN/MONTH",
       "READ/MONTH", "STORED", "$/MONTH", "GPU H SAVED/MONTH", "$ SAVED/MONTH"}};
  bool hours = false, dollars = false;
  for (const G4Row& row : g4.rows) {
    hours = hours || row.gpu_hours_saved.has_value();
    dollars = dollars || row.dollars_saved.has_value();
    rows.push_back({FormatBytes(row.size.g2_bytes),
                    row.size.g3_bytes == 0 ? "none" : FormatBytes(row.size.g3_bytes),
                    row.admission, absl::StrFormat("%.1f%%", 100 * row.hit_ratio),
                    absl::StrFormat("%.1f%%", 100 * row.g4_hit_ratio),
                    absl::StrFormat("%.0f", row.puts), absl::StrFormat("%.0f", row.gets),
                    BytesText(row.written_bytes), BytesText(row.read_bytes),
                    BytesText(row.stored_bytes), absl::StrFormat("%.2f", row.dollars),
                    absl::StrFormat("%.1f", row.gpu_hours_saved.value_or(0)),
                    absl::StrFormat("%.2f", row.dollars_saved.value_or(0))});
  }
  // Drops the last columns if they are unknown.
  for (auto& row : rows) row.resize(row.size() - (hours ? (dollars ? 0 : 1) : 2));
  return absl::StrCat("with G4, whose objects live for ", g4.assumptions.lifetime_days, " days\n\n",
                      FormatTable(rows));
}

}  // namespace kvkeep::tools
