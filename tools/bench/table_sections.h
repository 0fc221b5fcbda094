// The sections of the table: each starts the daemons that it needs, measures, and adds its series
// and lines to the report.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "tools/bench/baseline_set.h"
#include "tools/bench/cases.h"
#include "tools/bench/load_generator.h"

namespace kvkeep::bench {

// How much of everything: the real thing, or --quick.
struct TableScale {
  explicit TableScale(const Options& options);

  double seconds;  // of a case in one round
  int rounds;
  int put_rounds;  // of which each starts a daemon
  uint64_t get_keys;
  uint64_t small_table, large_table;  // chunks
  uint64_t large_call_keys;           // of the largest batches
  uint64_t held_leases;
  uint64_t put_g2_bytes;
  uint64_t pieces_g2_bytes, pieces_keys;
  uint64_t rest_bytes;  // moved before it
  double rest_seconds;
  uint64_t hits_keys, hits_dirty_chunks;
  uint64_t device_bytes;  // that are read from simulated devices in turn
};

struct TableRun {
  TableRun(const Options& table_options, const Progress& table_progress)
      : options(table_options),
        progress(table_progress),
        scale(table_options),
        baselines(table_options.arena_dir, table_options.region_bytes),
        report{.options = table_options} {}

  const Options& options;
  const Progress& progress;
  const TableScale scale;
  BaselineSet baselines;
  Report report;
  double longest_lock_us = 0;  // of all daemons
  double lock_seconds = 0;     // held in all, the same daemons
  bool lock_worked = false;    // without the time that the holder was not on a CPU

  void Say(const std::string& what) const {
    if (progress) progress(what);
  }
  // Clients of a daemon of our own; says in the report what they met.
  absl::StatusOr<std::unique_ptr<LoadGenerator>> Connect(const DaemonProcess& daemon,
                                                         uint32_t clients = 1);
  // Before a daemon is let go: how long its lock was held.
  absl::Status NoteLocks(LoadGenerator* generator);
};

absl::Status RunGets(TableRun* run);
absl::Status RunLookups(TableRun* run);
absl::Status RunPuts(TableRun* run);
absl::Status RunPieces(TableRun* run);
absl::Status RunRest(TableRun* run);
absl::Status RunPrefault(TableRun* run);
absl::Status RunHits(TableRun* run);
absl::Status RunDevices(TableRun* run);

}  // namespace kvkeep::bench
