// A comparison that nobody measured: figures as a test wants them, every part of it there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tiers/base/units.h"
#include "tools/compare/about.h"
#include "tools/compare/comparison.h"

namespace kvkeep::compare {

// Rounds of so many GB/s, each a second of one call that took as long as is right for that rate.
inline bench::Series SeriesOf(const std::vector<double>& gb_per_second) {
  bench::Series series;
  for (const double rate : gb_per_second) {
    bench::Measured round;
    round.seconds = 1;
    round.ops = round.chunks = 1;
    round.bytes = static_cast<uint64_t>(rate * 1e9);
    round.latency.Record(static_cast<uint64_t>(1e9 / rate));
    series.rounds.push_back(round);
  }
  return series;
}

inline Discipline DisciplineOf(Operation operation, uint64_t size, uint64_t batch,
                               const std::map<std::string, double>& gb_per_second,
                               bool first_fill = false) {
  Discipline discipline{.operation = operation,
                        .size = size,
                        .batch = batch,
                        .first_fill = first_fill,
                        .results = {}};
  for (const auto& [name, rate] : gb_per_second) {
    discipline.results[name] = SeriesOf({rate, rate, rate});
  }
  return discipline;
}

// kvkeep at `share` of fio, whose better blocks had 2 GB/s; that part of the reads from NVMe.
inline NvmeResult NvmeOf(uint64_t size, double share, double from_nvme) {
  BesideFio figures;
  figures.kvkeep = SeriesOf({2 * share, 2 * share});
  figures.fio[0] = {1, 1};
  figures.fio[1] = {2, 2};
  NvmeResult result;
  result.size = size;
  result.reads = result.first_fills = result.overwrites = figures;
  result.promoted_bytes =
      static_cast<uint64_t>(from_nvme * static_cast<double>(figures.kvkeep.total().bytes));
  return result;
}

}  // namespace kvkeep::compare
