// Injected: counts what a world did to a daemon, with one counter a kind, so that tests see a kind
// that never happens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvkeep {

struct Injected {
  struct Kind {
    const char* name;
    uint64_t Injected::*count;
    bool fault = true;  // false: a healthy machine does it too
  };

  // Faults of a device's operations. `refused_gone`: while it was gone.
  uint64_t read_errors = 0, corrupt_reads = 0, short_reads = 0, misdirected_reads = 0;
  uint64_t write_errors = 0, corrupt_writes = 0, torn_writes = 0, misdirected_writes = 0;
  uint64_t delayed = 0, stuck = 0, refused_gone = 0;
  uint64_t failed_syncs = 0, dropping_syncs = 0, lying_syncs = 0, forgetful_syncs = 0;
  // The fate of a dead process's writes; `landed_late`: while the next one ran.
  uint64_t killed_whole = 0, killed_partly = 0, killed_unwritten = 0, landed_late = 0;
  // Losses of a whole device: under a running process; its power alone; not there for a process.
  uint64_t vanished = 0, drive_cuts = 0, left_out = 0;
  // The medium rots, and the memory of G2 between two processes.
  uint64_t flipped_bits = 0, misplaced_blocks = 0, older_blocks = 0, damaged_arenas = 0;
  // Faults of an index. `lost_tails`: ends of the log that the next process of the same boot did
  // not find. `lost_writes`: by power cuts, and to holes. `phantoms`: writes that failed, and that
  // the next process found. `reused`: old records that are back although others have taken their
  // extents since.
  uint64_t index_refused = 0, index_failed = 0, index_lying_syncs = 0, index_forgetful_syncs = 0;
  uint64_t index_stalls = 0, lost_tails = 0, lost_writes = 0, phantoms = 0, reused = 0;
  // The wall clock is set; the machine was suspended for long.
  uint64_t clock_steps = 0, suspensions = 0;

  static std::span<const Kind> Kinds();  // all of them
  void Add(const Injected& more);
  uint64_t faults() const;
  std::string Describe() const;              // one line
  std::vector<std::string> Missing() const;  // kinds that did not happen
};

}  // namespace kvkeep
