// The value of a hit, and the cost of tiers: the arithmetic of `plan`. Pure functions.
//
// A terabyte is 1e12 bytes, as drives are sold; GiB are GiB. A day has 86,400 s, a year 365.25
// days.
#pragma once

#include <cstdint>
#include <optional>

namespace kvkeep::tools {

inline constexpr double kSecondsPerDay = 86'400, kDaysPerYear = 365.25;

// One deployment of a model, all its GPUs together.
struct PlanDeployment {
  double kv_bytes_per_token = 0;
  double prefill_tokens_per_second = 0;  // 0: not known
  double gpus = 1;
};

// Returns the rate of prefill by its linear layers alone: two operations a parameter and token.
double PrefillTokensPerSecond(double active_parameters, double gpus, double tflops, double mfu);

// Compares getting KV out of a tier with computing it.
struct FetchVerdict {
  double bytes_per_second = 0;
  double break_even_bytes_per_second = 0;  // rate at which a fetch is as fast as recomputing
  double seconds_per_token = 0;            // of the fetch
  double times_faster = 0;                 // than recomputing, for a long run
  bool pays() const { return times_faster > 1; }
  // Tokens of a run that is fetched as fast as it is computed, with the fixed cost of a fetch;
  // none: a fetch is never as fast.
  std::optional<double> least_tokens;
};
FetchVerdict JudgeFetch(const PlanDeployment& deployment, double bytes_per_second,
                        double seconds_per_fetch);

// Returns how long drives with this rating last; none: nothing is written.
std::optional<double> DriveYears(double terabytes_written, double write_amplification,
                                 double bytes_per_day);

// 0 or less: not known; results that depend on it are absent.
struct PlanPrices {
  double gpu_dollars_per_hour = 0;
  double gpu_watts = 0;    // at prefill
  double cache_watts = 0;  // constant power of the tiers; 0 is fine
  double dram_dollars_per_gib = 0, nvme_dollars_per_terabyte = 0;
  double years = 5;  // in which both are paid off; drives within their life
};

struct PlanSavings {
  double gpu_hours_per_day = 0;
  std::optional<double> joules_per_day, dollars_per_day;
};
// Returns the savings of so many tokens a day of prefill. REQUIRES: the rate of prefill is known.
PlanSavings SavingsOf(const PlanDeployment& deployment, const PlanPrices& prices,
                      double tokens_per_day);

// Returns the cost of the tiers a day; none: the price of a present tier is not known.
std::optional<double> TierDollarsPerDay(const PlanPrices& prices, uint64_t g2_bytes,
                                        uint64_t g3_bytes, std::optional<double> drive_years);

}  // namespace kvkeep::tools
