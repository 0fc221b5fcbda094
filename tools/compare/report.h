// What a comparison comes to: tables for people, JSON for the chart and for scripts. Figures are
// medians over rounds; a ratio is the median of the rounds' ratios. Free functions.
#pragma once

#include <string>
#include <vector>

#include "tools/compare/contest.h"
#include "tools/compare/nvme.h"

namespace kvkeep::compare {

struct Comparison {
  bench::Json about;  // the machine, the versions, the options
  std::vector<std::string> names;
  std::vector<Discipline> disciplines;
  std::vector<NvmeResult> nvme;
};

std::string ToText(const Comparison& comparison);
bench::Json ToJson(const Comparison& comparison);
// Bytes that were not what was put, all contestants together.
uint64_t WrongBytes(const Comparison& comparison);

}  // namespace kvkeep::compare
