// What RocksDB tells of itself, as IndexStats.
#pragma once

#include "tiers/index/index_stats.h"

namespace rocksdb {
class DB;
}

namespace kvkeep {

// Waits for RocksDB's own mutex at most, never for a disk. What it does not tell is 0.
IndexStats ReadRocksDbStats(rocksdb::DB& db);

}  // namespace kvkeep
