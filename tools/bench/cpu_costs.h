// RunCpuCosts: what a gigabyte costs in CPU time on each way through the daemon, on both sides.
// CPU time holds better than wall time where others run, but not quite: caches and clocks are
// shared. Starts its own daemons.
#pragma once

#include <absl/status/statusor.h>

#include "tools/bench/cases.h"
#include "tools/bench/report.h"

namespace kvkeep::bench {

// As Report::cpu_costs: get and put by each path, then promotion and write-back, whose cost is the
// daemon's alone. A local get is a lease and where the bytes lie: nothing is copied.
absl::StatusOr<Report> RunCpuCosts(const Options& options, const Progress& progress);

// ---- for tests

// What `series` spent, by its payload.
CpuCost CostOf(const std::string& path, const Series& series);
// What is left of `cpu_seconds` for `written_bytes`, when `put_bytes` cost what a put does.
CpuCost WriteBackCost(const CpuCost& put, uint64_t put_bytes, double cpu_seconds,
                      uint64_t written_bytes);

}  // namespace kvkeep::bench
