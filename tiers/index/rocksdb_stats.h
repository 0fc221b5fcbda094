// Reads RocksDB's own statistics as IndexStats.
#pragma once

#include "tiers/index/database.h"
#include "tiers/index/index_stats.h"

namespace kvkeep {

// Waits for RocksDB's own mutex at most, never for a disk. Numbers that RocksDB does not tell are
// 0.
IndexStats ReadRocksDbStats(const Database& database);

}  // namespace kvkeep
