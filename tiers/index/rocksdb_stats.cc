#include "tiers/index/rocksdb_stats.h"

#include <absl/strings/numbers.h>
#include <rocksdb/db.h>

#include <map>
#include <string>

namespace kvkeep {
namespace {

uint64_t Property(rocksdb::DB& db, const std::string& name) {
  uint64_t value = 0;
  return db.GetIntProperty(name, &value) ? value : 0;
}

uint64_t OfAllFamilies(rocksdb::DB& db, const std::string& name) {
  uint64_t value = 0;
  return db.GetAggregatedIntProperty(name, &value) ? value : 0;
}

uint64_t Number(const std::map<std::string, std::string>& stats, const char* name) {
  const auto found = stats.find(name);
  uint64_t value = 0;
  return found != stats.end() && absl::SimpleAtoi(found->second, &value) ? value : 0;
}

}  // namespace

IndexStats ReadRocksDbStats(const Database& database) {
  using Properties = rocksdb::DB::Properties;
  rocksdb::DB& db = *database.db;
  IndexStats stats{.records = Property(db, Properties::kEstimateNumKeys),
                   .compactions = Property(db, Properties::kNumRunningCompactions),
                   .flushes = Property(db, Properties::kNumRunningFlushes),
                   .background_errors = Property(db, Properties::kBackgroundErrors),
                   .takes_no_writes = Property(db, Properties::kIsWriteStopped) != 0};
  for (const auto& family : database.families) {
    std::map<std::string, std::string> stalls;
    db.GetMapProperty(family.get(), Properties::kCFStats, &stalls);
    stats.slowed_writes += Number(stalls, "io_stalls.total_slowdown");
    stats.stopped_writes += Number(stalls, "io_stalls.total_stop");
  }
  stats.table_bytes = OfAllFamilies(db, Properties::kLiveSstFilesSize);
  stats.memtable_bytes = OfAllFamilies(db, Properties::kCurSizeAllMemTables);
  stats.pending_compaction_bytes = OfAllFamilies(db, Properties::kEstimatePendingCompactionBytes);
  return stats;
}

}  // namespace kvkeep
