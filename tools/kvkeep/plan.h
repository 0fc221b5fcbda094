// `kvkeep plan`: predicts the effect of G2 and G3 of several sizes on a workload, and its value.
//
// A hit is a chunk in the leading run of its request, as the daemon's `lookup_leading_keys` counts.
// It predicts in two ways (README.md says how exact they are). The simulator of tiers/policy runs
// the policies themselves, one pair of sizes at a time. A curve of reuse distances predicts all
// sizes at once, for LRU and a G3 that takes every chunk. Pure functions.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/policy/reuse_curve.h"
#include "tiers/policy/simulate.h"
#include "tiers/policy/trace.h"
#include "tools/kvkeep/plan_cost.h"
#include "tools/kvkeep/plan_cpu.h"

namespace kvkeep::tools {

struct PlanSize {
  uint64_t g2_bytes = 0;
  uint64_t g3_bytes = 0;  // 0: no G3
};
// Returns a power of two close to `bytes`, at least 1 MiB.
uint64_t RoundPlanSize(double bytes);
// Returns each pair of a G2 and a G3, the smallest G3 first. An empty `g2` stands for a quarter of
// `g2_about` to four times as much; an empty `g3` for 0, and half of `g3_about` to four times as
// much.
std::vector<PlanSize> PlanSizes(std::vector<uint64_t> g2, std::vector<uint64_t> g3,
                                uint64_t g2_about, uint64_t g3_about);

// The requests of the observed period.
struct PlanWorkload {
  double seconds = 0;
  double requests = 0;
  double wanted_chunks = 0;
  double chunk_bytes = 0;
  double tokens_per_chunk = 0;
  // Expected requests; 0: as many as in `seconds`.
  double requests_per_day = 0;

  // Returns the length of the period in days; 0: not known.
  double days() const;
};

struct PlanPrediction {
  PlanSize size;
  double hit_ratio = 0;      // in either tier
  double g2_hit_ratio = 0;   // part of hit_ratio from G2
  double written_bytes = 0;  // to G3
};
PlanPrediction PredictByCurve(const ReuseCurve& curve, double chunk_bytes, const PlanSize& size);
// Uses `options` with the sizes of `size`, each at most `distinct_chunks`.
absl::StatusOr<PlanPrediction> PredictBySimulation(std::span<const TraceRequest> trace,
                                                   uint64_t distinct_chunks,
                                                   const TiersOptions& options,
                                                   const PlanSize& size);

struct PlanAssumptions {
  PlanDeployment deployment;
  double g2_bytes_per_second = 25e9, g3_bytes_per_second = 6e9;
  double seconds_per_fetch = 0.0005;
  double terabytes_written = 0;  // the drives' rating; 0: not known
  double write_amplification = 1;
  PlanPrices prices;
  std::string transport = "local";  // from engines to the daemon, one of CpuTransports()

  FetchVerdict g2_fetch() const {
    return JudgeFetch(deployment, g2_bytes_per_second, seconds_per_fetch);
  }
  FetchVerdict g3_fetch() const {
    return JudgeFetch(deployment, g3_bytes_per_second, seconds_per_fetch);
  }
};

// A day of a prediction; unknown values are absent.
struct PlanRow {
  PlanPrediction prediction;
  std::optional<double> written_bytes_per_day;
  std::optional<double> drive_years;
  // Prefill that is saved: hits in a tier that is slower than recomputing save nothing.
  std::optional<double> tokens_saved_per_day;
  std::optional<double> requests_saved_per_day;  // the same in whole prompts
  std::optional<double> gpu_hours_saved_per_day;
  std::optional<double> joules_saved_per_day, dollars_saved_per_day;
  std::optional<double> tier_dollars_per_day;
  std::optional<PlanCores> cores;  // kept busy on average
};
// REQUIRES: workload.days() > 0.
PlanTraffic TrafficOf(const PlanWorkload& workload, const PlanPrediction& prediction);
PlanRow RowOf(const PlanWorkload& workload, const PlanAssumptions& assumptions,
              const PlanPrediction& prediction);

}  // namespace kvkeep::tools
