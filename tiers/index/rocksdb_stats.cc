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

uint64_t Number(const std::map<std::string, std::string>& stats, const char* name) {
  const auto found = stats.find(name);
  uint64_t value = 0;
  return found != stats.end() && absl::SimpleAtoi(found->second, &value) ? value : 0;
}

}  // namespace

IndexStats ReadRocksDbStats(rocksdb::DB& db) {
  using Properties = rocksdb::DB::Properties;
  std::map<std::string, std::string> stalls;
  db.GetMapProperty(Properties::kCFStats, &stalls);
  return {.table_bytes = Property(db, Properties::kLiveSstFilesSize),
          .memtable_bytes = Property(db, Properties::kCurSizeAllMemTables),
          .pending_compaction_bytes = Property(db, Properties::kEstimatePendingCompactionBytes),
          .compactions = Property(db, Properties::kNumRunningCompactions),
          .flushes = Property(db, Properties::kNumRunningFlushes),
          .background_errors = Property(db, Properties::kBackgroundErrors),
          .slowed_writes = Number(stalls, "io_stalls.total_slowdown"),
          .stopped_writes = Number(stalls, "io_stalls.total_stop"),
          .takes_no_writes = Property(db, Properties::kIsWriteStopped) != 0};
}

}  // namespace kvkeep
