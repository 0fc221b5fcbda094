// Options of an index's database, the part of its log that is used, and its behaviour after an
// error of its own threads.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <atomic>
#include <vector>

#include "tiers/index/rocksdb_index.h"

namespace kvkeep {

// The second column family, beside RocksDB's default one.
inline constexpr char kRecencyFamily[] = "recency";

// RocksDB's own log would lie on the device, and Debian's build, whose asserts are on, ends the
// process when a second line of it cannot be written. Errors are in the statuses.
class NoLog : public rocksdb::Logger {
 public:
  using Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

// Writes no log either, but counts the damage that RocksDB tells only there: a replay of the
// write-ahead log met it, and left out all entries behind it. An end in the middle of an entry is
// no damage: a kill or the loss of power leaves that.
class DamageOfLogs final : public NoLog {
 public:
  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override;
  uint64_t found() const { return found_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> found_{0};
};

// Returns whether RocksDB failed to read a table file for itself: to compact it, or to check a file
// that it has just written. Only the status's words tell.
bool IsFailedRead(const rocksdb::Status& status);

rocksdb::Options DatabaseOptions(const RocksDbIndexOptions& options, rocksdb::Env* env);
// The default family, then that of recency if it is to be opened.
std::vector<rocksdb::ColumnFamilyDescriptor> Families(const rocksdb::Options& database,
                                                      bool recency);

}  // namespace kvkeep
