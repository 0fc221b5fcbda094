#include "tools/bench/histogram_json.h"

namespace kvkeep::bench {

Json HistogramToWire(const LatencyHistogram& histogram) {
  Json buckets = Json::array();
  for (const auto& [bucket, count] : histogram.buckets()) buckets.push_back({bucket, count});
  return {{"min", histogram.min_ns()},
          {"max", histogram.max_ns()},
          {"sum", histogram.sum_ns()},
          {"buckets", std::move(buckets)}};
}

LatencyHistogram HistogramFromWire(const Json& json) {
  std::map<size_t, uint64_t> buckets;
  for (const Json& pair : json.at("buckets")) {
    buckets[pair.at(0).get<size_t>()] = pair.at(1).get<uint64_t>();
  }
  return LatencyHistogram::FromBuckets(buckets, json.at("min"), json.at("max"), json.at("sum"));
}

Json HistogramToReport(const LatencyHistogram& histogram) {
  const auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  return {{"count", histogram.count()},
          {"min", us(histogram.min_ns())},
          {"p50", us(histogram.Quantile(0.5))},
          {"p99", us(histogram.Quantile(0.99))},
          {"p999", us(histogram.Quantile(0.999))},
          {"max", us(histogram.max_ns())},
          {"mean", histogram.mean_ns() / 1e3}};
}

}  // namespace kvkeep::bench
