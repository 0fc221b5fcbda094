#include "tools/bench/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "tools/bench/json_fields.h"

namespace kvkeep::bench {
namespace {

constexpr int kSubBits = 6;
constexpr uint64_t kSubBuckets = 1ull << kSubBits;  // of each power of two
constexpr uint64_t kLinear = 2 * kSubBuckets;       // values below have a bucket each

size_t BucketOf(uint64_t ns) {
  if (ns < kLinear) return ns;
  const int shift = std::bit_width(ns) - kSubBits - 1;  // at least 1; ns >> shift is in [64, 128)
  return kLinear + static_cast<size_t>(shift - 1) * kSubBuckets + ((ns >> shift) - kSubBuckets);
}

uint64_t MiddleOf(size_t bucket) {
  if (bucket < kLinear) return bucket;
  const int shift = static_cast<int>((bucket - kLinear) / kSubBuckets) + 1;
  const uint64_t low = (kSubBuckets + (bucket - kLinear) % kSubBuckets) << shift;
  return low + (1ull << (shift - 1));
}

}  // namespace

void LatencyHistogram::Record(uint64_t ns) {
  const size_t bucket = BucketOf(ns);
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  ++counts_[bucket];
  ++count_;
  sum_ += ns;
  min_ = std::min(min_, ns);
  max_ = std::max(max_, ns);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
  for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

double LatencyHistogram::mean_ns() const {
  return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

uint64_t LatencyHistogram::Quantile(double quantile) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(quantile * static_cast<double>(count_));
  uint64_t seen = 0;
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    seen += counts_[bucket];
    if (counts_[bucket] > 0 && static_cast<double>(seen) >= wanted) {
      return std::clamp(MiddleOf(bucket), min_, max_);
    }
  }
  return max_;
}

void to_json(Json& json, const LatencyHistogram& histogram) {
  Json buckets = Json::array();
  for (size_t i = 0; i < histogram.counts_.size(); ++i) {
    if (histogram.counts_[i] > 0) buckets.push_back({i, histogram.counts_[i]});
  }
  json = {{"min", histogram.min_ns()},
          {"max", histogram.max_},
          {"sum", histogram.sum_},
          {"buckets", std::move(buckets)}};
}

void from_json(const Json& json, LatencyHistogram& histogram) {
  histogram = LatencyHistogram();
  for (const Json& pair : json.at("buckets")) {
    const size_t bucket = pair.at(0);
    if (bucket > BucketOf(UINT64_MAX)) continue;
    if (bucket >= histogram.counts_.size()) histogram.counts_.resize(bucket + 1);
    histogram.counts_[bucket] = pair.at(1);
    histogram.count_ += histogram.counts_[bucket];
  }
  if (histogram.count_ == 0) return;
  histogram.min_ = json.at("min");
  histogram.max_ = json.at("max");
  histogram.sum_ = json.at("sum");
}

Json QuantilesUs(const LatencyHistogram& histogram) {
  return {{"count", histogram.count()},
          {"min", static_cast<double>(histogram.min_ns()) / 1e3},
          {"p50", histogram.QuantileUs(0.5)},
          {"p99", histogram.QuantileUs(0.99)},
          {"p999", histogram.QuantileUs(0.999)},
          {"max", static_cast<double>(histogram.max_ns()) / 1e3},
          {"mean", histogram.mean_ns() / 1e3}};
}

}  // namespace kvkeep::bench
