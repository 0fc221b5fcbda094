// RunTable: what a daemon must hold, line by line: measured, baseline of the same minutes, target.
// Starts the daemons that it needs, one after the other. What is measured beside peers, a bare
// stream or fio is tools/compare's.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "tools/bench/cases.h"

namespace kvkeep::bench {

const std::vector<std::string>& TableSections();  // "get", "lookup", "put", ...

absl::StatusOr<Report> RunTable(const Options& options, const Progress& progress);

}  // namespace kvkeep::bench
