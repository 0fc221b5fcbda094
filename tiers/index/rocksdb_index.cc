#include "tiers/index/rocksdb_index.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <pthread.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"
#include "tiers/index/record_pipe.h"
#include "tiers/index/database.h"
#include "tiers/index/rocksdb_stats.h"
#include "tiers/index/table_file.h"

namespace kvkeep {
namespace {

// First byte of every key in the database. A new kind needs a new letter, never a new meaning.
constexpr char kIdentityKey[] = "!identity";
constexpr char kStableMarkKey[] = "#stable";
constexpr char kMetaPrefix = 'm';
constexpr char kRecordPrefix = 'r';

constexpr uint8_t kIndexVersion = 1;
constexpr size_t kIdentityBytes = 1 + Uuid::kSize;

constexpr MonotonicTime kDiskBytesMaxAge = std::chrono::seconds(1);

rocksdb::Slice ToSlice(absl::string_view text) { return {text.data(), text.size()}; }
absl::string_view ToView(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

absl::Status FromRocks(const std::string& dir, absl::string_view what, const rocksdb::Status& s) {
  if (s.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("index ", dir, ": ", what, ": ", s.ToString());
  if (s.IsIncomplete() || s.IsBusy() || s.IsTryAgain() || s.IsTimedOut() || s.IsAborted() ||
      s.IsShutdownInProgress()) {
    return absl::UnavailableError(text);
  }
  if (s.IsNoSpace()) return absl::ResourceExhaustedError(text);
  if (s.IsCorruption()) return absl::DataLossError(text);
  if (s.IsIOError()) {
    // A held LOCK file has no code of its own.
    const bool locked = absl::StrContains(s.ToString(), "While lock file") ||
                        absl::StrContains(s.ToString(), "lock hold by current process");
    return locked ? absl::UnavailableError(text) : absl::DataLossError(text);
  }
  if (s.IsNotSupported() || s.IsInvalidArgument()) return absl::FailedPreconditionError(text);
  return absl::InternalError(text);
}

// RocksDB's own log would lie on the device, and Debian's build, whose asserts are on, ends the
// process when a second line of it cannot be written. What went wrong is in the statuses.
class NoLog : public rocksdb::Logger {
 public:
  using Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

// Nor that, but for what it says nowhere else: that a replay of the write-ahead log met damage, and
// left out all that was logged behind it. An end in the middle of an entry is none: a kill or the
// loss of power leaves that.
class DamageOfLogs final : public NoLog {
 public:
  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    if (!absl::StrContains(format, ": dropping %d bytes; %s")) return;
    std::array<char, 1024> text;
    vsnprintf(text.data(), text.size(), format, arguments);
    for (const char* end : {"truncated header", "truncated record", "reading trailing data"}) {
      if (absl::StrContains(text.data(), end)) return;
    }
    found_.fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t found() const { return found_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> found_{0};
};

// Where there was no space RocksDB looks for some every five seconds, and goes on by itself once
// there is: with the log whose write failed, which ends the process in a build with asserts
// (Debian's). What was not written is not known to us to be missing, either. So it stays stopped
// until it is opened anew.
class NoRecovery final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

// Of a table file that RocksDB reads for itself: to compact it, or to look at what it has just
// written. It says so in words only.
bool IsFailedRead(const rocksdb::Status& status) {
  return status.IsIOError() && absl::StrContains(status.ToString(), "While pread");
}

// After such a read it takes no write any more, as if one had failed. Nothing is lost then: what
// was to be compacted or flushed is still there, so it may be told to go on.
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

rocksdb::Options DatabaseOptions(const RocksDbIndexOptions& options, rocksdb::Env* env) {
  rocksdb::Options db;
  db.env = env;
  db.listeners.push_back(std::make_shared<ReadsMayFail>());
  db.listeners.push_back(std::make_shared<NoRecovery>());
  db.create_if_missing = options.create;
  db.paranoid_checks = true;
  db.write_buffer_size = options.write_buffer_bytes;
  db.max_write_buffer_number = 2;
  db.max_total_wal_size = 2 * options.write_buffer_bytes;
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
  db.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return db;
}

// Bytes that the files below `dir` take on disk. Preallocated ones count as what they take. Files
// may vanish meanwhile (compaction): those count as nothing.
uint64_t DirectoryBytes(const std::string& dir) {
  uint64_t bytes = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator it(dir, error), end;
  for (; !error && it != end; it.increment(error)) {
    struct stat st;
    if (lstat(it->path().c_str(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
    bytes += std::max<uint64_t>(st.st_size, uint64_t{512} * st.st_blocks);
  }
  return bytes;
}

absl::Status CheckIdentity(const std::string& dir, absl::string_view identity, const Uuid& device) {
  const int version = identity.empty() ? 0 : static_cast<uint8_t>(identity.front());
  if (version != kIndexVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("index ", dir, ": format version ", version, ", this build reads ",
                     kIndexVersion, "; start the kvkeep that wrote it, or empty the device"));
  }
  if (identity.size() != kIdentityBytes) {
    return absl::DataLossError(absl::StrCat("index ", dir, ": identity is damaged"));
  }
  const absl::StatusOr<Uuid> owner = Uuid::FromBytes(identity.substr(1));
  KVKEEP_CHECK(owner.ok());  // of that size any bytes are
  if (*owner == device) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("index ", dir, ": belongs to device ", owner->ToHex(), ", not to ",
                   device.ToHex(), "; put the right index directory back, or empty the device"));
}

class RocksDbIndex final : public ChunkIndex {
 public:
  RocksDbIndex(std::string dir, const RocksDbIndexOptions& options, Database database,
               uint64_t log_damages = 0)
      : dir_(std::move(dir)),
        clock_(options.clock),
        log_damages_(log_damages),
        recount_after_bytes_(options.write_buffer_bytes / 4),
        env_(std::move(database.env)),
        db_(std::move(database.db)) {
    // A stalled database says so at once instead of holding the index thread.
    commit_options_.no_slowdown = !options.may_wait;
    durable_options_.sync = true;
    scan_options_.total_order_seek = true;
    scan_options_.fill_cache = false;
    scan_options_.readahead_size = 2 * kMiB;
    CountFilesIfDue();
  }
  ~RocksDbIndex() override;

  absl::Status ClaimFor(const Uuid& device, bool create);

  absl::Status Commit(const IndexBatch& batch) override;
  absl::Status Sync(const StableMark& mark) override;
  absl::StatusOr<StableMark> ReadStableMark() override;
  absl::StatusOr<ScanResult> Scan(absl::FunctionRef<bool(const IndexRecord&)> visit) override;
  absl::Status PutMeta(absl::string_view name, absl::string_view value) override;
  absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view name) override;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ListMeta(
      absl::string_view prefix) override;
  uint64_t disk_bytes() const override { return disk_bytes_; }
  IndexStats stats() const override {
    IndexStats stats = ReadRocksDbStats(*db_);
    stats.log_damages = log_damages_;
    return stats;
  }

 private:
  absl::Status Wrap(absl::string_view what, const rocksdb::Status& status) const {
    return FromRocks(dir_, what, status);
  }
  // The same for a write. One that failed, and was not only refused for now, is the last.
  absl::Status WrapWrite(absl::string_view what, const rocksdb::Status& status) {
    absl::Status wrapped = Wrap(what, status);
    if (IsFailedRead(status)) {  // refused for that: nothing was written
      read_failed_ = true;
      return absl::UnavailableError(wrapped.message());
    }
    if (!wrapped.ok() && !absl::IsUnavailable(wrapped)) write_failed_ = true;
    return wrapped;
  }
  // Before each write. Unavailable: the read failed again.
  absl::Status ResumeAfterFailedRead() {
    if (!read_failed_.exchange(false)) return absl::OkStatus();
    const rocksdb::Status resumed = db_->Resume();
    if (!resumed.ok()) read_failed_ = true;
    return WrapWrite("go on after a failed read", resumed);
  }
  // False when there is none.
  absl::StatusOr<bool> Read(absl::string_view key, std::string* value);
  // What Scan's own thread does. OK when nobody takes any more, too.
  absl::Status ReadRecords(RecordPipe& pipe);
  // Reads the directory, so it is for the callers that may wait for the disk anyway.
  void CountFilesIfDue();

  const std::string dir_;
  const Clock* const clock_;
  const uint64_t log_damages_;
  const uint64_t recount_after_bytes_;
  std::unique_ptr<IndexEnv> env_;
  std::unique_ptr<rocksdb::DB> db_;  // provides its own synchronization
  rocksdb::WriteOptions commit_options_, durable_options_;
  rocksdb::ReadOptions scan_options_;

  std::atomic<bool> write_failed_ = false;
  std::atomic<bool> read_failed_ = false;  // so RocksDB has to be told to go on
  // Handed to RocksDB since the files were last counted.
  std::atomic<uint64_t> written_bytes_ = 0;
  std::atomic<uint64_t> disk_bytes_ = 0;
  Mutex mu_;
  std::optional<MonotonicTime> counted_at_ ABSL_GUARDED_BY(mu_);
};

RocksDbIndex::~RocksDbIndex() {
  if (write_failed_) {
    AbandonedDatabases::Get().Add({.env = std::move(env_), .db = std::move(db_)});
  } else {
    // The write-ahead log is left as it is: the next open replays it, as after a kill.
    db_->Close().PermitUncheckedError();
  }
}

absl::StatusOr<bool> RocksDbIndex::Read(absl::string_view key, std::string* value) {
  const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), ToSlice(key), value);
  if (status.IsNotFound()) return false;
  if (!status.ok()) return Wrap("read", status);
  return true;
}

absl::Status RocksDbIndex::ClaimFor(const Uuid& device, bool create) {
  std::string identity;
  KVKEEP_ASSIGN_OR_RETURN(const bool found, Read(kIdentityKey, &identity));
  if (found) return CheckIdentity(dir_, identity, device);
  if (!create) return absl::DataLossError(absl::StrCat("index ", dir_, ": has no identity"));
  identity = absl::StrCat(std::string(1, kIndexVersion), device.view());
  return WrapWrite("write identity", db_->Put(durable_options_, kIdentityKey, identity));
}

absl::Status RocksDbIndex::Commit(const IndexBatch& batch) {
  if (batch.empty()) return absl::OkStatus();
  rocksdb::WriteBatch writes;
  const std::string prefix(1, kRecordPrefix);
  for (const ChunkId& id : batch.removes) {
    const rocksdb::Status added = writes.Delete(prefix + EncodeRecordKey(id));
    if (!added.ok()) return Wrap("fill batch", added);
  }
  for (const IndexRecord& record : batch.adds) {
    const rocksdb::Status added =
        writes.Put(prefix + EncodeRecordKey(record.id), EncodeRecordValue(record));
    if (!added.ok()) return Wrap("fill batch", added);
  }
  KVKEEP_RETURN_IF_ERROR(ResumeAfterFailedRead());
  written_bytes_ += writes.GetDataSize();
  absl::Status committed = WrapWrite("commit", db_->Write(commit_options_, &writes));
  CountFilesIfDue();
  return committed;
}

absl::Status RocksDbIndex::Sync(const StableMark& mark) {
  // The mark goes in only after what it vouches for is safe, and is itself safe before we answer.
  // As an empty write: in line with commits, so that none can fail between its check and its sync,
  // as SyncWAL's could, which ends the process in a build with asserts.
  KVKEEP_RETURN_IF_ERROR(ResumeAfterFailedRead());
  rocksdb::WriteBatch nothing;
  KVKEEP_RETURN_IF_ERROR(WrapWrite("sync log", db_->Write(durable_options_, &nothing)));
  CountFilesIfDue();
  // May wait out a stall: refusing here would fail every durable put that waits for this sync.
  return WrapWrite("write stable mark",
                   db_->Put(durable_options_, kStableMarkKey, EncodeStableMark(mark)));
}

absl::StatusOr<StableMark> RocksDbIndex::ReadStableMark() {
  std::string value;
  KVKEEP_ASSIGN_OR_RETURN(const bool found, Read(kStableMarkKey, &value));
  if (!found) return StableMark{};
  absl::StatusOr<StableMark> mark = DecodeStableMark(value);
  if (mark.ok()) return mark;
  return absl::Status(mark.status().code(),
                      absl::StrCat("index ", dir_, ": ", std::string(mark.status().message())));
}

absl::Status RocksDbIndex::ReadRecords(RecordPipe& pipe) {
  const std::string first(1, kRecordPrefix), end(1, kRecordPrefix + 1);
  const rocksdb::Slice end_slice(end);
  rocksdb::ReadOptions read = scan_options_;
  read.iterate_upper_bound = &end_slice;
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(read));
  RecordPipe::Batch batch;
  for (it->Seek(first); it->Valid(); it->Next()) {
    absl::StatusOr<IndexRecord> record =
        DecodeRecord(ToView(it->key()).substr(1), ToView(it->value()));
    if (!record.ok()) {
      ++batch.undecodable;
      continue;
    }
    batch.records.push_back(*std::move(record));
    if (batch.records.size() < RecordPipe::kBatchRecords) continue;
    if (!pipe.Put(std::exchange(batch, {}))) return absl::OkStatus();
    batch.records.reserve(RecordPipe::kBatchRecords);
  }
  pipe.Put(std::move(batch));
  return it->status().ok() ? absl::OkStatus() : Wrap("scan", it->status());
}

// Reading and decoding is about half of a start's work: on a thread of its own, beside `visit`.
absl::StatusOr<ChunkIndex::ScanResult> RocksDbIndex::Scan(
    absl::FunctionRef<bool(const IndexRecord&)> visit) {
  RecordPipe pipe;
  absl::Status read;
  std::thread reader([&] {
    pthread_setname_np(pthread_self(), "kvkeep-scan");
    read = ReadRecords(pipe);
    pipe.EndOfRecords();
  });
  ScanResult result;
  for (bool more = true; more;) {
    const std::optional<RecordPipe::Batch> batch = pipe.Take();
    if (!batch.has_value()) break;
    result.undecodable += batch->undecodable;
    for (const IndexRecord& record : batch->records) {
      ++result.records;
      more = visit(record);
      if (!more) break;
    }
  }
  pipe.StopTaking();
  reader.join();
  KVKEEP_RETURN_IF_ERROR(read);
  return result;
}

absl::Status RocksDbIndex::PutMeta(absl::string_view name, absl::string_view value) {
  if (name.empty() || name.size() > kMaxMetaNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("name of an index value is ", name.size(),
                                                   " bytes, allowed are 1 to ", kMaxMetaNameBytes));
  }
  if (value.size() > kMaxMetaBytes) {
    return absl::InvalidArgumentError(absl::StrCat("index value '", name, "' is ", value.size(),
                                                   " bytes, allowed are at most ", kMaxMetaBytes));
  }
  KVKEEP_RETURN_IF_ERROR(ResumeAfterFailedRead());
  const std::string key = absl::StrCat(std::string(1, kMetaPrefix), name);
  written_bytes_ += key.size() + value.size();
  absl::Status put = WrapWrite("write named value", db_->Put(commit_options_, key, ToSlice(value)));
  CountFilesIfDue();
  return put;
}

absl::StatusOr<std::optional<std::string>> RocksDbIndex::GetMeta(absl::string_view name) {
  std::string value;
  KVKEEP_ASSIGN_OR_RETURN(const bool found,
                          Read(absl::StrCat(std::string(1, kMetaPrefix), name), &value));
  if (!found) return std::nullopt;
  return std::optional<std::string>(std::move(value));
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> RocksDbIndex::ListMeta(
    absl::string_view prefix) {
  std::vector<std::pair<std::string, std::string>> found;
  const std::string first = absl::StrCat(std::string(1, kMetaPrefix), prefix);
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(scan_options_));
  for (it->Seek(first); it->Valid() && it->key().starts_with(first); it->Next()) {
    found.emplace_back(std::string(it->key().data() + 1, it->key().size() - 1),
                       it->value().ToString());
  }
  if (!it->status().ok()) return Wrap("list named values", it->status());
  return found;
}

void RocksDbIndex::CountFilesIfDue() {
  const MonotonicTime now = clock_->Now();
  {
    MutexLock lock(&mu_);
    const bool fresh = counted_at_.has_value() && now - *counted_at_ < kDiskBytesMaxAge;
    if (fresh && written_bytes_ < recount_after_bytes_) return;
    counted_at_ = now;  // others use the old number while we look
    written_bytes_ = 0;
  }
  disk_bytes_ = DirectoryBytes(dir_);
}

// What RocksDB does not know, or calls a wrong argument, when it opens files of ours is damage.
absl::Status OpenError(const std::string& dir, const rocksdb::Status& status) {
  const absl::Status error = FromRocks(dir, "open", status);
  return absl::IsFailedPrecondition(error) ? absl::DataLossError(error.message()) : error;
}

absl::Status VerifyTableFiles(const std::string& dir, rocksdb::DB& db) {
  rocksdb::ReadOptions read;
  read.readahead_size = 2 * kMiB;
  return FromRocks(dir, "table files", db.VerifyChecksum(read));
}

class RocksDbInspector final : public IndexInspector {
 public:
  RocksDbInspector(std::string dir, Database database, absl::Status log_status)
      : dir_(dir),
        log_status_(std::move(log_status)),
        db_(database.db.get()),
        index_(std::move(dir), RocksDbIndexOptions(), std::move(database)) {}

  absl::Status CheckOwner(const Uuid& device) { return index_.ClaimFor(device, /*create=*/false); }
  const absl::Status& log_status() const override { return log_status_; }
  absl::Status VerifyTables() override { return VerifyTableFiles(dir_, *db_); }
  absl::StatusOr<StableMark> ReadStableMark() override { return index_.ReadStableMark(); }
  absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view name) override {
    return index_.GetMeta(name);
  }
  absl::Status Visit(absl::FunctionRef<bool(absl::string_view, absl::string_view)> visit) override;

 private:
  const std::string dir_;
  const absl::Status log_status_;
  rocksdb::DB* const db_;
  RocksDbIndex index_;
};

absl::Status RocksDbInspector::Visit(
    absl::FunctionRef<bool(absl::string_view, absl::string_view)> visit) {
  const std::string first(1, kRecordPrefix);
  rocksdb::ReadOptions read;
  read.total_order_seek = true;
  read.fill_cache = false;
  read.readahead_size = 2 * kMiB;
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(read));
  for (it->Seek(first); it->Valid() && it->key().starts_with(first); it->Next()) {
    if (!visit(ToView(it->key()).substr(1), ToView(it->value()))) break;
  }
  return FromRocks(dir_, "scan", it->status());
}

absl::Status CheckThereIsOne(const std::string& dir) {
  // RocksDB calls this an invalid argument; for us it is a lost index.
  struct stat st;
  if (lstat(absl::StrCat(dir, "/CURRENT").c_str(), &st) == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("index ", dir, ": CURRENT: ", std::strerror(errno), "; the index is lost"));
}

absl::StatusOr<Database> OpenToLook(const std::string& dir, rocksdb::WALRecoveryMode log_mode) {
  Database database{.env = std::make_unique<IndexEnv>(nullptr), .db = nullptr};
  rocksdb::Options options = DatabaseOptions({}, database.env.get());
  options.wal_recovery_mode = log_mode;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::OpenForReadOnly(options, dir, &raw);
  database.db.reset(raw);
  if (!opened.ok()) return OpenError(dir, opened);
  return database;
}

}  // namespace

absl::Status RocksDbIndexOptions::Validate() const {
  if (write_buffer_bytes < 64 * kKiB || write_buffer_bytes > kGiB) {
    return absl::InvalidArgumentError(absl::StrCat("write_buffer_bytes is ", write_buffer_bytes,
                                                   ", allowed are ", 64 * kKiB, " to ", kGiB));
  }
  if (max_open_files < 16 || max_open_files > 65536) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_open_files is ", max_open_files, ", allowed are 16 to 65536"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ChunkIndex>> OpenRocksDbIndex(const std::string& dir,
                                                             const Uuid& device,
                                                             const RocksDbIndexOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  if (AbandonedDatabases::Get().full()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(dir, ": writes of ", AbandonedDatabases::kMost,
                     " indexes have failed in this process, whose memory they keep: restart it"));
  }
  if (!options.create) KVKEEP_RETURN_IF_ERROR(CheckThereIsOne(dir));
  DamagedTables damaged(dir);
  if (!damaged.all_aside()) return damaged.status();
  Database database{.env = std::make_unique<IndexEnv>(options.file_system), .db = nullptr};
  rocksdb::Options settings = DatabaseOptions(options, database.env.get());
  const auto damage = std::make_shared<DamageOfLogs>();
  settings.info_log = damage;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(settings, dir, &raw);
  database.db.reset(raw);
  if (!opened.ok()) return damaged.status().ok() ? OpenError(dir, opened) : damaged.status();
  damaged.Remove();
  // Else a damaged one would show in the middle of the scan, when the device counts as open.
  if (!options.create) KVKEEP_RETURN_IF_ERROR(VerifyTableFiles(dir, *database.db));

  auto index = std::make_unique<RocksDbIndex>(dir, options, std::move(database), damage->found());
  KVKEEP_RETURN_IF_ERROR(index->ClaimFor(device, options.create));
  return std::unique_ptr<ChunkIndex>(std::move(index));
}

bool OneMoreIndexMayFail() { return AbandonedDatabases::Get().has_room(); }

absl::StatusOr<std::unique_ptr<IndexInspector>> InspectRocksDbIndex(const std::string& dir,
                                                                    const Uuid& device) {
  KVKEEP_RETURN_IF_ERROR(CheckThereIsOne(dir));
  KVKEEP_RETURN_IF_ERROR(CheckTableFiles(dir));
  // First as strict as a healthy log allows; then as the daemon opens it.
  absl::Status log_status;
  absl::StatusOr<Database> database =
      OpenToLook(dir, rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords);
  if (!database.ok()) {
    log_status = database.status();
    database = OpenToLook(dir, rocksdb::WALRecoveryMode::kPointInTimeRecovery);
    if (!database.ok()) return database.status();
  }
  auto inspector =
      std::make_unique<RocksDbInspector>(dir, *std::move(database), std::move(log_status));
  KVKEEP_RETURN_IF_ERROR(inspector->CheckOwner(device));
  return std::unique_ptr<IndexInspector>(std::move(inspector));
}

}  // namespace kvkeep
