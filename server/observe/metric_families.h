// MetricFamilies: what one scrape shows, family by family, in prometheus-cpp's terms.
//
// Names are given without "kvkeep_", which is added to all but the process's metrics: their names
// are the same for every program. Not thread-safe.
#pragma once

#include <absl/strings/string_view.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "server/observe/counters.h"
#include "tiers/base/histogram.h"

namespace kvkeep {

class MetricFamilies {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  void Add(const MetricInfo& info, uint64_t value);
  // The help text of a family is that of its first series.
  void Gauge(const char* name, const char* help, double value, Labels labels = {});
  void Counter(const char* name, const char* help, double value, Labels labels = {});
  // Nanoseconds, shown in seconds.
  void Histogram(const char* name, const char* help, const HistogramCounts& counts,
                 Labels labels = {});
  // Removes these labels; series that are then alike become their sum.
  void SumUpWithout(std::initializer_list<absl::string_view> labels);
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& AddSeries(const char* name, const char* help,
                                      prometheus::MetricType type, Labels labels);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace kvkeep
