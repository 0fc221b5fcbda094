// IndexStats: statistics of the database under a device's index. All zero where there is none. A
// plain value.
#pragma once

#include <cstdint>

namespace kvkeep {

struct IndexStats {
  uint64_t records = 0;                   // about: one that was written anew may count twice
  uint64_t table_bytes = 0;               // of live table files
  uint64_t memtable_bytes = 0;            // not written to one yet
  uint64_t pending_compaction_bytes = 0;  // to be rewritten, as it estimates
  uint64_t compactions = 0, flushes = 0;  // under way now
  uint64_t background_errors = 0;         // since it was opened
  uint64_t slowed_writes = 0;             // times that it began to slow writes down
  uint64_t stopped_writes = 0;            // times that it began to take none
  bool takes_no_writes = false;           // now
  // Damaged places of the write-ahead log when it was opened. Entries behind them are lost, synced
  // or not. After a power cut they may be just the unsynced ones.
  uint64_t log_damages = 0;
};

}  // namespace kvkeep
