// LatencyHistogram: a histogram of durations in bounded memory, exact to 1.6 %.
//
// It has 64 buckets per power of two, as HdrHistogram has; below 128 ns every nanosecond has its
// own. Histograms of several threads are added up. kvkeep-bench gets the whole histogram as JSON
// and computes quantiles (histogram.py). Not thread-safe.
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

  // Writes the whole histogram: buckets (number and count of non-empty ones), min, max and sum.
  friend void to_json(nlohmann::ordered_json& json, const LatencyHistogram& histogram);

 private:
  std::vector<uint64_t> counts_;  // as long as the highest bucket needs
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
};

}  // namespace kvkeep::bench
