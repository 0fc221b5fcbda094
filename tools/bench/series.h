// Series: what one case or baseline measured, round by round, and its forms in a report.
// Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/daemon_probe.h"
#include "tools/bench/measured.h"
#include "tools/bench/statistics.h"

namespace kvkeep::bench {

// What the daemon spent meanwhile.
struct DaemonUsage {
  double cpu_seconds = 0;
  uint64_t lock_acquisitions = 0;
  uint64_t lock_held_ns = 0;
  // Since the daemon's start, not of this case alone. `worked`: without the time that the holder
  // was not on a CPU; 0 where the daemon does not count it.
  uint64_t lock_held_ns_max = 0;
  uint64_t lock_worked_ns_max = 0;

  void Add(const DaemonUsage& other);
};
DaemonUsage UsageBetween(const DaemonStatus& before, const DaemonStatus& after);

struct Series {
  std::string name;
  Json about;  // of a case: its spec, clients and path
  std::vector<Measured> rounds;
  bool has_daemon = false;  // else a baseline
  DaemonUsage daemon;

  // One figure of each round.
  template <typename Figure>
  std::vector<double> Each(Figure figure) const {
    std::vector<double> values;
    for (const Measured& round : rounds) values.push_back(figure(round));
    return values;
  }
  std::vector<double> OpsPerSecond() const {
    return Each([](const Measured& m) { return m.ops_per_second(); });
  }
  std::vector<double> ChunksPerSecond() const {
    return Each([](const Measured& m) { return m.chunks_per_second(); });
  }
  std::vector<double> GbPerSecond() const {
    return Each([](const Measured& m) { return m.gb_per_second(); });
  }
  std::vector<double> LatencyUs(double quantile) const {
    return Each([quantile](const Measured& m) { return m.latency.QuantileUs(quantile); });
  }
  Measured total() const;
};

// All numbers: totals, and median, min and max over rounds.
Json ToReport(const Series& series);
// For people: one row a series, with a head.
std::string FormatSeries(const std::vector<const Series*>& series);

}  // namespace kvkeep::bench
