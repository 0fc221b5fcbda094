// Median and spread of a figure that was measured once a round. The machine is noisy: what counts
// is the median over rounds, and of a ratio the median of the rounds' ratios, not the ratio of
// medians. Free functions, plain values.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

namespace kvkeep::bench {

struct Summary {
  double median = 0;  // of an even number: the mean of the two in the middle
  double min = 0;
  double max = 0;
  // (max - min) / median: how much to believe.
  double spread() const { return median == 0 ? 0 : (max - min) / median; }
};

// All zero when there are no values.
inline Summary Summarize(std::span<const double> values) {
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  const double median =
      sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {.median = median, .min = sorted.front(), .max = sorted.back()};
}

// a[i] / b[i], round by round, as far as both go; a round whose b is 0 is left out.
inline std::vector<double> Ratios(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (b[i] != 0) ratios.push_back(a[i] / b[i]);
  }
  return ratios;
}

}  // namespace kvkeep::bench
