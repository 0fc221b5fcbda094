#include "tools/kvkeep/plan_cost.h"

#include <algorithm>

namespace kvkeep::tools {

double PrefillTokensPerSecond(double active_parameters, double gpus, double tflops, double mfu) {
  return mfu * tflops * 1e12 * gpus / (2 * active_parameters);
}

FetchVerdict JudgeFetch(const PlanDeployment& deployment, double bytes_per_second,
                        double seconds_per_fetch) {
  FetchVerdict verdict{.bytes_per_second = bytes_per_second};
  verdict.break_even_bytes_per_second =
      deployment.prefill_tokens_per_second * deployment.kv_bytes_per_token;
  verdict.seconds_per_token = deployment.kv_bytes_per_token / bytes_per_second;
  if (verdict.break_even_bytes_per_second <= 0) return verdict;
  verdict.times_faster = bytes_per_second / verdict.break_even_bytes_per_second;
  const double gained = 1 / deployment.prefill_tokens_per_second - verdict.seconds_per_token;
  if (gained > 0) verdict.least_tokens = seconds_per_fetch / gained;
  return verdict;
}

std::optional<double> DriveYears(double terabytes_written, double write_amplification,
                                 double bytes_per_day) {
  if (bytes_per_day <= 0) return std::nullopt;
  return terabytes_written * 1e12 / (bytes_per_day * write_amplification * kDaysPerYear);
}

PlanSavings SavingsOf(const PlanDeployment& deployment, const PlanPrices& prices,
                      double tokens_per_day) {
  const double seconds = tokens_per_day / deployment.prefill_tokens_per_second * deployment.gpus;
  PlanSavings savings{.gpu_hours_per_day = seconds / 3600};
  if (prices.gpu_watts > 0) {
    savings.joules_per_day = seconds * prices.gpu_watts - prices.cache_watts * kSecondsPerDay;
  }
  if (prices.gpu_dollars_per_hour > 0) {
    savings.dollars_per_day = savings.gpu_hours_per_day * prices.gpu_dollars_per_hour;
  }
  return savings;
}

std::optional<double> TierDollarsPerDay(const PlanPrices& prices, uint64_t g2_bytes,
                                        uint64_t g3_bytes, std::optional<double> drive_years) {
  if (prices.dram_dollars_per_gib <= 0) return std::nullopt;
  if (g3_bytes > 0 && prices.nvme_dollars_per_terabyte <= 0) return std::nullopt;
  const double dram = static_cast<double>(g2_bytes) / (1 << 30) * prices.dram_dollars_per_gib;
  const double nvme = static_cast<double>(g3_bytes) / 1e12 * prices.nvme_dollars_per_terabyte;
  const double nvme_years = std::min(prices.years, drive_years.value_or(prices.years));
  return (dram / prices.years + (nvme > 0 ? nvme / nvme_years : 0)) / kDaysPerYear;
}

}  // namespace kvkeep::tools
