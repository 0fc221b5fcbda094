// What an invocation of kvkeep-bench measures, verb by verb; the table is in table.h. Each starts a
// daemon where one is asked for. They fork: this process must not have touched gRPC. One thread.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <string>

#include "tools/bench/client_target.h"
#include "tools/bench/daemon_process.h"
#include "tools/bench/load_generator.h"
#include "tools/bench/options.h"
#include "tools/bench/pattern_report.h"
#include "tools/bench/report.h"

namespace kvkeep::bench {

inline constexpr uint64_t kSmallChunkBytes = 64;

// Says what is being done now; may be empty.
using Progress = std::function<void(const std::string& what)>;
inline void Say(const Progress& progress, const std::string& what) {
  if (progress) progress(what);
}

// get, put, lookup, mixed, pieces and baseline: one case per size, and beside it the baselines of
// the same sizes, round by round; and the paths of a GPU.
absl::StatusOr<Report> RunCases(const Options& options, const Progress& progress);

// --path cuda-ipc and --path pinned (gpu_cases.cc): chunks to the GPU and from it, by the size of
// runs, each round beside plain copies of as many bytes in one piece, between host memory that the
// driver knows and the GPU. With --tier g3: chunks that are on NVMe only to the GPU, each round
// beside fio on the same drive. By the report's options; fills its path, cases, baselines and
// lines: a line a case, with what is promised of it. `daemon`: ours, or null. REQUIRES: it is ours
// where chunks come from G3.
absl::Status MeasureGpu(const Progress& progress, const DaemonProcess* daemon, LoadGenerator& load,
                        Report* report);

// cpu (cpu_costs.cc): what a gigabyte costs in CPU time on each way through the daemon, on both
// sides. CPU time holds better than wall time where others run, but not quite: caches and clocks
// are shared. As Report::cpu_costs: get and put by each path, then promotion and write-back, whose
// cost is the daemon's alone. A local get is a lease and where the bytes lie: nothing is copied.
absl::StatusOr<Report> RunCpuCosts(const Options& options, const Progress& progress);
// What `series` spent, by its payload.
CpuCost CostOf(const std::string& path, const Series& series);
// What is left of `cpu_seconds` for `written_bytes`, when `put_bytes` cost what a put does.
CpuCost WriteBackCost(const CpuCost& put, uint64_t put_bytes, double cpu_seconds,
                      uint64_t written_bytes);

// --pattern (pattern_run.cc): plays it once for each rate: clears the daemon, stores what is there
// before, reads some prompts alone, then lets all workers play. What the drive does without the
// daemon, fio measures before and after. A daemon that is started has a G2 of a quarter of the
// working set and a G3 that holds it, unless `options` say otherwise (g2_bytes, g3_bytes above 0).
absl::StatusOr<PatternReport> RunPattern(const Options& options, const PatternRequest& request,
                                         const Progress& progress);

// ---- shared by these and the table

// The daemon that --daemon and its options describe, with so much memory.
DaemonOptions DaemonOf(const Options& options, uint64_t g2_bytes, uint64_t g3_bytes);
// Clients of a started daemon, or of the one that the options name when `daemon` is null.
ClientTarget TargetOf(const Options& options, const DaemonProcess* daemon);
// What its clients met, and which daemon, in the report.
absl::Status Describe(LoadGenerator& load, Report* report);

}  // namespace kvkeep::bench
