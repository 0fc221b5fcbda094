// What a report says of the machine and of the run: the keys of "about". Reads /proc and /sys.
#pragma once

#include <string>

#include "tools/bench/measured.h"
#include "tools/compare/plan.h"

namespace kvkeep::compare {

struct AboutRun {
  std::string revision;  // of the sources, as git describes them; empty: not known
  bool quick = false;
  Plan plan;
  double took_seconds = 0;
};

bench::Json About(const AboutRun& run);

// That could be had now, what can be dropped included; 0: not known.
uint64_t AvailableMemoryBytes();

}  // namespace kvkeep::compare
