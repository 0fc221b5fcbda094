// Latency histograms as JSON: whole, for another process, and as quantiles, for reports.
// Free functions.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/bench/histogram.h"

namespace kvkeep::bench {

using Json = nlohmann::ordered_json;

// Buckets and all.
Json HistogramToWire(const LatencyHistogram& histogram);
LatencyHistogram HistogramFromWire(const Json& json);
// count, min, p50, p99, p999, max and mean, in microseconds.
Json HistogramToReport(const LatencyHistogram& histogram);

}  // namespace kvkeep::bench
