#include "tools/bench/client/histogram.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tools/bench/client/json_fields.h"

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

}  // namespace kvkeep::bench
