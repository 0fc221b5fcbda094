// Median and spread of a figure that was measured once a round. The machine is noisy: what counts
// is the median over rounds, and of a ratio the median of the rounds' ratios, not the ratio of
// medians. Free functions, plain values.
#pragma once

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
Summary Summarize(std::span<const double> values);

// a[i] / b[i], round by round, as far as both go; a round whose b is 0 is left out.
std::vector<double> Ratios(std::span<const double> a, std::span<const double> b);

}  // namespace kvkeep::bench
