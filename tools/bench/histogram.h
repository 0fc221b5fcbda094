// LatencyHistogram: how long things took, in memory that does not grow, to within 1.6 %.
//
// 64 buckets per power of two, as HdrHistogram has them; below 128 ns every nanosecond has its own.
// Histograms of several threads, processes and rounds are added up; as JSON a histogram goes whole
// from one process to another. Not thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace kvkeep::bench {

class LatencyHistogram {
 public:
  void Record(uint64_t ns);
  void RecordSeconds(double seconds) {
    Record(seconds <= 0 ? 0 : static_cast<uint64_t>(seconds * 1e9));
  }
  void Merge(const LatencyHistogram& other);

  uint64_t count() const { return count_; }
  uint64_t sum_ns() const { return sum_; }
  uint64_t min_ns() const { return count_ == 0 ? 0 : min_; }
  uint64_t max_ns() const { return max_; }
  double mean_ns() const;
  // The value that a share `quantile` (0 to 1) of the recorded ones does not exceed. 0 when empty.
  uint64_t Quantile(double quantile) const;
  double QuantileUs(double quantile) const { return static_cast<double>(Quantile(quantile)) / 1e3; }

  // Whole: buckets (number and count of those that are not empty), min, max and sum.
  friend void to_json(nlohmann::ordered_json& json, const LatencyHistogram& histogram);
  friend void from_json(const nlohmann::ordered_json& json, LatencyHistogram& histogram);

 private:
  std::vector<uint64_t> counts_;  // as long as the highest bucket needs
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
};

// For reports: count, min, p50, p99, p999, max and mean, in microseconds.
nlohmann::ordered_json QuantilesUs(const LatencyHistogram& histogram);

}  // namespace kvkeep::bench
