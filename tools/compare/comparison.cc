#include "tools/compare/comparison.h"

#include <absl/strings/str_cat.h>

#include "tools/bench/statistics.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::compare {

using bench::Series;

std::string NameOf(const Discipline& discipline) {
  return discipline.first_fill ? "first put" : std::string(OperationName(discipline.operation));
}

std::string CallName(const Discipline& discipline) {
  const std::string size = tools::FormatBytes(discipline.size);
  return discipline.batch == 1 ? size : absl::StrCat(discipline.batch, " x ", size);
}

const Series* ResultsOf(const Discipline& discipline, const std::string& name) {
  const auto found = discipline.results.find(name);
  return found == discipline.results.end() ? nullptr : &found->second;
}

std::vector<double> TimesAsFast(const Discipline& discipline, const std::string& ours,
                                const std::string& theirs) {
  const Series* const one = ResultsOf(discipline, ours);
  const Series* const other = ResultsOf(discipline, theirs);
  if (one == nullptr || other == nullptr) return {};
  return discipline.operation == Operation::kLookup
             ? bench::Ratios(other->LatencyUs(0.5), one->LatencyUs(0.5))
             : bench::Ratios(one->GbPerSecond(), other->GbPerSecond());
}

std::vector<double> OfFio(const BesideFio& figures) {
  return bench::Ratios(figures.kvkeep.GbPerSecond(), figures.baseline());
}

uint64_t WrongBytes(const Comparison& comparison) {
  uint64_t wrong = 0;
  for (const Discipline& discipline : comparison.disciplines) {
    for (const auto& [name, series] : discipline.results) wrong += series.total().wrong_bytes;
  }
  for (const NvmeResult& result : comparison.nvme) {
    wrong += result.reads.kvkeep.total().wrong_bytes;
  }
  return wrong;
}

}  // namespace kvkeep::compare
