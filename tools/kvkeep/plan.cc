#include "tools/kvkeep/plan.h"

#include <algorithm>
#include <bit>

#include "tiers/base/status_macros.h"

namespace kvkeep::tools {

uint64_t RoundPlanSize(double bytes) {
  const auto whole = static_cast<uint64_t>(std::clamp(bytes * 1.5, 1.0, 1e18));
  return std::max(std::bit_floor(whole), uint64_t{1} << 20);
}

std::vector<PlanSize> PlanSizes(std::vector<uint64_t> g2, std::vector<uint64_t> g3,
                                uint64_t g2_about, uint64_t g3_about) {
  if (g2.empty()) {
    for (const uint64_t by : {16, 8, 4, 2, 1}) g2.push_back(g2_about * 4 / by);
  }
  if (g3.empty()) {
    g3.push_back(0);
    for (const uint64_t by : {8, 4, 2, 1}) {
      if (g3_about > 0) g3.push_back(g3_about * 4 / by);
    }
  }
  for (std::vector<uint64_t>* list : {&g2, &g3}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  std::vector<PlanSize> sizes;
  for (const uint64_t below : g3) {
    for (const uint64_t above : g2) sizes.push_back({.g2_bytes = above, .g3_bytes = below});
  }
  return sizes;
}

double PlanWorkload::days() const {
  return requests_per_day > 0 ? requests / requests_per_day : seconds / kSecondsPerDay;
}

PlanPrediction PredictByCurve(const ReuseCurve& curve, double chunk_bytes, const PlanSize& size) {
  const auto g2 = static_cast<double>(size.g2_bytes), g3 = static_cast<double>(size.g3_bytes);
  // G3 has everything that G2 has, if it is larger.
  PlanPrediction prediction{.size = size,
                            .hit_ratio = curve.HitRatio(std::max(g2, g3)),
                            .g2_hit_ratio = curve.HitRatio(g2)};
  if (size.g3_bytes > 0) prediction.written_bytes = curve.StoredChunks(g3) * chunk_bytes;
  return prediction;
}

absl::StatusOr<PlanPrediction> PredictBySimulation(std::span<const TraceRequest> trace,
                                                   uint64_t distinct_chunks,
                                                   const TiersOptions& options,
                                                   const PlanSize& size) {
  const auto chunks = [&](uint64_t bytes) {
    return std::clamp(bytes / options.chunk_bytes, uint64_t{1},
                      std::max(distinct_chunks, uint64_t{1}));
  };
  PlanPrediction prediction{.size = size};
  if (size.g3_bytes == 0) {
    KVKEEP_ASSIGN_OR_RETURN(const TraceResult result,
                            SimulateTrace(trace, options.g2_policy, chunks(size.g2_bytes),
                                          options.buckets));
    prediction.hit_ratio = prediction.g2_hit_ratio = result.hit_ratio;
    return prediction;
  }
  TiersOptions tiers = options;
  tiers.g2_chunks = chunks(size.g2_bytes);
  tiers.g3_chunks = chunks(size.g3_bytes);
  KVKEEP_ASSIGN_OR_RETURN(const TiersResult result, SimulateTiers(trace, tiers));
  prediction.hit_ratio = result.trace.hit_ratio;
  if (result.trace.chunk_refs > 0) {
    prediction.g2_hit_ratio =
        static_cast<double>(result.g2_hit_chunks) / static_cast<double>(result.trace.chunk_refs);
  }
  prediction.written_bytes = static_cast<double>(result.g3_written_bytes);
  return prediction;
}

// All requested chunks move: present ones are got, missing ones are put.
PlanTraffic TrafficOf(const PlanWorkload& workload, const PlanPrediction& prediction) {
  const double seconds = workload.days() * kSecondsPerDay;
  const double wanted = workload.wanted_chunks * workload.chunk_bytes / seconds;
  return {.got_bytes = wanted * prediction.hit_ratio,
          .put_bytes = wanted * (1 - prediction.hit_ratio),
          .promoted_bytes = wanted * (prediction.hit_ratio - prediction.g2_hit_ratio),
          .written_bytes = prediction.written_bytes / seconds};
}

PlanRow RowOf(const PlanWorkload& workload, const PlanAssumptions& assumptions,
              const PlanPrediction& prediction) {
  PlanRow row{.prediction = prediction};
  const double days = workload.days();
  const uint64_t g3_bytes = prediction.size.g3_bytes;
  if (days <= 0) return row;
  row.cores = CoresOf(KnownCpuCosts(), assumptions.transport, TrafficOf(workload, prediction));
  if (g3_bytes > 0) row.written_bytes_per_day = prediction.written_bytes / days;
  if (g3_bytes > 0 && assumptions.terabytes_written > 0) {
    row.drive_years = DriveYears(assumptions.terabytes_written, assumptions.write_amplification,
                                 *row.written_bytes_per_day);
  }
  row.tier_dollars_per_day =
      TierDollarsPerDay(assumptions.prices, prediction.size.g2_bytes, g3_bytes, row.drive_years);
  if (assumptions.deployment.prefill_tokens_per_second <= 0) return row;
  double ratio = 0;
  if (assumptions.g2_fetch().pays()) ratio += prediction.g2_hit_ratio;
  if (assumptions.g3_fetch().pays()) ratio += prediction.hit_ratio - prediction.g2_hit_ratio;
  const double tokens = ratio * workload.wanted_chunks * workload.tokens_per_chunk / days;
  row.tokens_saved_per_day = tokens;
  row.requests_saved_per_day = ratio * workload.requests / days;
  const PlanSavings savings = SavingsOf(assumptions.deployment, assumptions.prices, tokens);
  row.gpu_hours_saved_per_day = savings.gpu_hours_per_day;
  row.joules_saved_per_day = savings.joules_per_day;
  row.dollars_saved_per_day = savings.dollars_per_day;
  return row;
}

}  // namespace kvkeep::tools
