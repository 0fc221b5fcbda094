#include "tools/bench/statistics.h"

#include <algorithm>

namespace kvkeep::bench {

Summary Summarize(std::span<const double> values) {
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  const double median =
      sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {.median = median, .min = sorted.front(), .max = sorted.back()};
}

std::vector<double> Ratios(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (b[i] != 0) ratios.push_back(a[i] / b[i]);
  }
  return ratios;
}

}  // namespace kvkeep::bench
