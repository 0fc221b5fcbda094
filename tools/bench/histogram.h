// LatencyHistogram: how long things took, in memory that does not grow, to within 1.6 %.
//
// 64 buckets per power of two, as HdrHistogram has them; below 128 ns every nanosecond has its own.
// Histograms of several threads, processes and rounds are added up. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace kvkeep::bench {

class LatencyHistogram {
 public:
  void Record(uint64_t ns);
  void Merge(const LatencyHistogram& other);

  uint64_t count() const { return count_; }
  uint64_t sum_ns() const { return sum_; }
  uint64_t min_ns() const { return count_ == 0 ? 0 : min_; }
  uint64_t max_ns() const { return max_; }
  double mean_ns() const;
  // The value that a share `quantile` (0 to 1) of the recorded ones does not exceed. 0 when empty.
  uint64_t Quantile(double quantile) const;

  // Bucket -> count, to carry a histogram from one process to another; min, max and sum go along.
  std::map<size_t, uint64_t> buckets() const;
  static LatencyHistogram FromBuckets(const std::map<size_t, uint64_t>& buckets, uint64_t min_ns,
                                      uint64_t max_ns, uint64_t sum_ns);

 private:
  std::vector<uint64_t> counts_;  // as long as the highest bucket needs
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
};

}  // namespace kvkeep::bench
