#include "tiers/index/rocksdb_options.h"

#include <absl/strings/match.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>

#include <array>
#include <cstdio>
#include <memory>

namespace kvkeep {
namespace {

// After running out of space RocksDB looks for some every five seconds, and then goes on by itself,
// with the log whose write failed. This ends the process in a build with asserts (Debian's), and we
// do not know which writes are missing. So RocksDB stays stopped until it is opened anew.
class NoRecovery final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

// After a failed read of its own RocksDB takes no writes, as if one had failed. Nothing is lost
// then: the data to be compacted or flushed is still there, so it may be told to go on.
class ReadsMayFail final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status* error) override {
    using Reason = rocksdb::BackgroundErrorReason;
    const bool of_tables =
        reason == Reason::kCompaction || reason == Reason::kFlush || reason == Reason::kFlushNoWAL;
    if (!of_tables || !IsFailedRead(*error)) return;
    if (error->severity() <= rocksdb::Status::kHardError) return;
    *error = rocksdb::Status(*error, rocksdb::Status::kHardError);  // the most that Resume takes
  }
};

}  // namespace

void DamageOfLogs::Logv(const char* format, va_list arguments) {
  if (!absl::StrContains(format, ": dropping %d bytes; %s")) return;
  std::array<char, 1024> text;
  vsnprintf(text.data(), text.size(), format, arguments);
  for (const char* end : {"truncated header", "truncated record", "reading trailing data"}) {
    if (absl::StrContains(text.data(), end)) return;
  }
  found_.fetch_add(1, std::memory_order_relaxed);
}

bool IsFailedRead(const rocksdb::Status& status) {
  return status.IsIOError() && absl::StrContains(status.ToString(), "While pread");
}

rocksdb::Options DatabaseOptions(const RocksDbIndexOptions& options, rocksdb::Env* env) {
  rocksdb::Options db;
  db.env = env;
  db.listeners.push_back(std::make_shared<ReadsMayFail>());
  db.listeners.push_back(std::make_shared<NoRecovery>());
  db.create_if_missing = options.create;
  db.create_missing_column_families = true;  // an index of before there was a second one
  db.paranoid_checks = true;
  db.write_buffer_size = options.write_buffer_bytes;
  db.max_write_buffer_number = 2;
  db.max_total_wal_size = 2 * options.write_buffer_bytes;
  // Both families are flushed together, so no log stays for the sake of one of them. A replay ends
  // at damage: in a log that only the one needs it would take records of later logs, too.
  db.atomic_flush = true;
  // Table files and the room a compaction needs stay small next to what the device keeps back.
  db.target_file_size_base = options.write_buffer_bytes;
  db.max_bytes_for_level_base = 4 * options.write_buffer_bytes;
  db.max_compaction_bytes = 4 * options.write_buffer_bytes;
  db.level0_file_num_compaction_trigger = 2;
  db.compression = rocksdb::kNoCompression;  // digests do not compress
  db.bottommost_compression = rocksdb::kNoCompression;
  db.max_background_jobs = 2;
  db.max_subcompactions = 1;
  db.max_open_files = options.max_open_files;
  // No healing behind our back after a write error: the device's circuit breaker decides.
  db.max_bgerror_resume_count = 0;
  db.max_manifest_file_size = options.write_buffer_bytes;
  db.manifest_preallocation_size = 64 * kKiB;
  // A torn end of the log is what a power cut leaves: replay up to it. Up to damage, too: see
  // DamageOfLogs.
  db.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  db.info_log = std::make_shared<NoLog>();
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;  // read once at start, then only written
  // RocksDB 9 writes 6 unless told, which Debian 12's RocksDB 7.8 and CheckTableFiles cannot read.
  table.format_version = 5;
  db.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return db;
}

std::vector<rocksdb::ColumnFamilyDescriptor> Families(const rocksdb::Options& database,
                                                      bool recency) {
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  families.emplace_back(rocksdb::kDefaultColumnFamilyName, database);
  if (!recency) return families;
  rocksdb::ColumnFamilyOptions small = database;
  // Its entries overwrite each other, so several buffers of them are merged before the rest.
  small.level0_file_num_compaction_trigger = 4;
  families.emplace_back(kRecencyFamily, small);
  return families;
}

}  // namespace kvkeep
