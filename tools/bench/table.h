// RunTable: what the local path must hold, line by line: measured, baseline of the same minutes,
// wanted. Starts the daemons that it needs, one after the other.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "tools/bench/cases.h"

namespace kvkeep::bench {

const std::vector<std::string>& TableSections();  // "get", "lookup", "put", "pieces"

absl::StatusOr<Report> RunTable(const Options& options, const Progress& progress);

}  // namespace kvkeep::bench
