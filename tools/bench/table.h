// RunTable: what a daemon must hold, line by line: measured, baseline of the same minutes, target.
// Starts the daemons that it needs, one after the other. What is measured beside peers, a bare
// stream or fio is tools/compare's. One thread.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/baselines.h"
#include "tools/bench/cases.h"
#include "tools/bench/load_generator.h"

namespace kvkeep::bench {

const std::vector<std::string>& TableSections();  // "get", "lookup", "put", ...

absl::StatusOr<Report> RunTable(const Options& options, const Progress& progress);

// ---- for the sections: each starts the daemons that it needs, measures, and adds its series and
// lines to the report.

// How much of everything: the real thing here; --quick is in table.cc.
struct TableScale {
  double seconds = 1;  // of a case in one round
  int rounds = 9;
  int put_rounds = 9;  // of which each starts a daemon
  uint64_t get_keys = 320;
  uint64_t small_table = 10'000, large_table = 1'000'000;  // chunks
  uint64_t large_call_keys = 65'536;                       // of the largest batches
  uint64_t held_leases = 100'000;
  // More than a session's staging memory, which a client may ask for a second time.
  uint64_t put_g2_bytes = 1280ull << 20;
  uint64_t pieces_g2_bytes = 512ull << 20, pieces_keys = 32;
  uint64_t rest_bytes = 10'000'000'000;  // moved before it
  double rest_seconds = 30;
  uint64_t hits_keys = 64, hits_dirty_chunks = 320;
  uint64_t device_bytes = 384ull << 20;  // that are read from simulated devices in turn
};

// A daemon of our own and its clients.
struct TableSide {
  std::unique_ptr<DaemonProcess> daemon;
  std::unique_ptr<LoadGenerator> load;
};

struct TableRun {
  const Options& options;
  const Progress& progress;
  const TableScale scale;
  BaselineSet baselines;
  Report report;
  double longest_lock_us = 0;  // of all daemons
  double lock_seconds = 0;     // held in all, the same daemons
  bool lock_worked = false;    // without the time that the holder was not on a CPU

  void Say(const std::string& what) const { bench::Say(progress, what); }
  void SayRound(const std::string& what, int round) const;  // of scale.rounds
  // Says in the report what the clients met.
  absl::StatusOr<TableSide> Start(const DaemonOptions& daemon_options);
  // Before a daemon is let go: how long its lock was held.
  absl::Status NoteLocks(LoadGenerator& load);
  void Add(Line line) { report.lines.push_back(std::move(line)); }
  void Keep(Series series) { report.cases.push_back(std::move(series)); }
};

// On chunks (table_chunks.cc).
absl::Status RunGets(TableRun* run);
absl::Status RunLookups(TableRun* run);
absl::Status RunPuts(TableRun* run);
absl::Status RunPieces(TableRun* run);
absl::Status RunHits(TableRun* run);
// On the daemon as a process, and on drives (table_process.cc).
absl::Status RunPrefault(TableRun* run);
absl::Status RunDevices(TableRun* run);
absl::Status RunRest(TableRun* run);

}  // namespace kvkeep::bench
