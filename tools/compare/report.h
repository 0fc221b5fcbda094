// What a comparison comes to: tables for people, JSON for the chart and for scripts. Figures are
// medians over rounds; a ratio is the median of the rounds' ratios. Free functions.
#pragma once

#include <string>

#include "tools/compare/comparison.h"

namespace kvkeep::compare {

std::string ToText(const Comparison& comparison);
bench::Json ToJson(const Comparison& comparison);

}  // namespace kvkeep::compare
