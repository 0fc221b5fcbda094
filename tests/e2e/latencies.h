// Latencies: durations of calls, to compare.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace kvkeep::e2e {

struct Latencies {
  std::vector<double> all;  // in the caller's unit

  // Returns the latency at the quantile `share`: 0.5 is the median. 0 if there are none.
  double At(double share) {
    std::sort(all.begin(), all.end());
    return all.empty() ? 0 : all[static_cast<size_t>(share * static_cast<double>(all.size() - 1))];
  }
};

}  // namespace kvkeep::e2e
