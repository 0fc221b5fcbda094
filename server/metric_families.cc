#include "server/metric_families.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"

namespace kvkeep {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

// Divided, not multiplied: 100 ns is 1e-07 s then, not 1.0000000000000001e-07.
double Seconds(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

}  // namespace

void MetricFamilies::Add(const MetricInfo& info, uint64_t value) {
  Labels labels;
  for (const MetricLabel& label : info.labels) {
    if (label.name != nullptr) labels.push_back({label.name, label.value});
  }
  const double scaled = static_cast<double>(value) * info.scale;
  info.gauge ? Gauge(info.family, info.help, scaled, std::move(labels))
             : Counter(info.family, info.help, scaled, std::move(labels));
}

void MetricFamilies::Gauge(const char* name, const char* help, double value, Labels labels) {
  AddSeries(name, help, MetricType::Gauge, std::move(labels)).gauge.value = value;
}

void MetricFamilies::Counter(const char* name, const char* help, double value, Labels labels) {
  AddSeries(name, help, MetricType::Counter, std::move(labels)).counter.value = value;
}

void MetricFamilies::Histogram(const char* name, const char* help, const HistogramCounts& counts,
                               Labels labels) {
  KVKEEP_CHECK(counts.bounds != nullptr);
  ClientMetric::Histogram& histogram =
      AddSeries(name, help, MetricType::Histogram, std::move(labels)).histogram;
  uint64_t so_far = 0;
  for (size_t i = 0; i < counts.bounds->size(); ++i) {
    so_far += counts.counts[i];
    histogram.bucket.push_back(
        {.cumulative_count = so_far, .upper_bound = Seconds(counts.bounds->bound(i))});
  }
  // The serializer adds the bucket of all.
  histogram.sample_count = counts.count();
  histogram.sample_sum = Seconds(counts.sum);
}

ClientMetric& MetricFamilies::AddSeries(const char* name, const char* help, MetricType type,
                                        Labels labels) {
  const bool of_everybody = absl::StartsWith(name, "process_");
  const std::string full = of_everybody ? name : absl::StrCat("kvkeep_", name);
  MetricFamily* family = nullptr;
  for (MetricFamily& known : families_) {
    if (known.name == full) family = &known;
  }
  if (family == nullptr) family = &families_.emplace_back(MetricFamily{full, help, type, {}});
  KVKEEP_CHECK(family->type == type);
  ClientMetric& series = family->metric.emplace_back();
  series.label = std::move(labels);
  return series;
}

}  // namespace kvkeep
