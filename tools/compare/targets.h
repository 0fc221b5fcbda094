// The targets of a comparison, and whether it met them: the rules in one small table (targets.cc).
// A rule is about the median of the rounds' ratios. Pure functions, plain values.
#pragma once

#include <string>
#include <vector>

#include "tools/compare/comparison.h"

namespace kvkeep::compare {

enum class Outcome {
  kMet,
  kMissed,
  kRefused,  // what was measured is not what the rule is about
};
std::string OutcomeName(Outcome outcome);

struct Verdict {
  std::string what;  // "get 8 x 4.0 MiB"
  std::string ours, theirs;
  double target = 0;  // at least so many times theirs
  double measured = 0;
  Outcome outcome = Outcome::kMissed;
};

// One for each rule and each of its sizes that was measured; none for others.
std::vector<Verdict> Judge(const Comparison& comparison);

}  // namespace kvkeep::compare
