#include "server/observe/metric_families.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

bool SameLabels(const ClientMetric& a, const ClientMetric& b) {
  return std::equal(a.label.begin(), a.label.end(), b.label.begin(), b.label.end(),
                    [](const ClientMetric::Label& left, const ClientMetric::Label& right) {
                      return left.name == right.name && left.value == right.value;
                    });
}

// Adds `from` to `sum`. Both are of one family, so of one kind; histograms have the same bounds.
void AddTo(const ClientMetric& from, ClientMetric& sum) {
  sum.counter.value += from.counter.value;
  sum.gauge.value += from.gauge.value;
  sum.histogram.sample_count += from.histogram.sample_count;
  sum.histogram.sample_sum += from.histogram.sample_sum;
  KVKEEP_CHECK(sum.histogram.bucket.size() == from.histogram.bucket.size());
  for (size_t i = 0; i < from.histogram.bucket.size(); ++i) {
    sum.histogram.bucket[i].cumulative_count += from.histogram.bucket[i].cumulative_count;
  }
}

// Divides rather than multiplies, so that 100 ns is 1e-07 s, not 1.0000000000000001e-07.
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
  // The serializer adds the bucket "+Inf".
  histogram.sample_count = counts.count();
  histogram.sample_sum = Seconds(counts.sum);
}

void MetricFamilies::SumUpWithout(std::initializer_list<absl::string_view> labels) {
  for (MetricFamily& family : families_) {
    std::vector<ClientMetric> sums;
    for (ClientMetric& series : family.metric) {
      const size_t before = series.label.size();
      std::erase_if(series.label, [labels](const ClientMetric::Label& label) {
        return std::find(labels.begin(), labels.end(), label.name) != labels.end();
      });
      const auto same = std::find_if(sums.begin(), sums.end(), [&series](const ClientMetric& sum) {
        return SameLabels(sum, series);
      });
      if (series.label.size() == before || same == sums.end()) {
        sums.push_back(std::move(series));
      } else {
        AddTo(series, *same);
      }
    }
    family.metric = std::move(sums);
  }
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
