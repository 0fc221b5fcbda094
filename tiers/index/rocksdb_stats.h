// What RocksDB tells of itself, as IndexStats.
#pragma once

#include "tiers/index/database.h"
#include "tiers/index/index_stats.h"

namespace kvkeep {

// Waits for RocksDB's own mutex at most, never for a disk. What it does not tell is 0.
IndexStats ReadRocksDbStats(const Database& database);

}  // namespace kvkeep
