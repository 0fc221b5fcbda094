// RunCases: the verbs get, put, lookup, mixed, pieces and baseline: one case per size, and beside
// it the baselines of the same sizes, round by round.
#pragma once

#include <absl/status/statusor.h>

#include <functional>

#include "tools/bench/client_target.h"
#include "tools/bench/daemon_process.h"
#include "tools/bench/load_generator.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"

namespace kvkeep::bench {

inline constexpr uint64_t kSmallChunkBytes = 64;

// Says what is being done now; may be empty.
using Progress = std::function<void(const std::string& what)>;
inline void Say(const Progress& progress, const std::string& what) {
  if (progress) progress(what);
}

absl::StatusOr<Report> RunCases(const Options& options, const Progress& progress);

// ---- shared with the table

// The daemon that --daemon and its options describe, with so much memory.
DaemonOptions DaemonOf(const Options& options, uint64_t g2_bytes, uint64_t g3_bytes);
// Clients of a started daemon, or of the one that the options name when `daemon` is null.
ClientTarget TargetOf(const Options& options, const DaemonProcess* daemon);
// What its clients met, and which daemon, in the report.
absl::Status Describe(LoadGenerator& load, Report* report);

}  // namespace kvkeep::bench
