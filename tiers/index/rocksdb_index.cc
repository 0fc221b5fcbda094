#include "tiers/index/rocksdb_index.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <pthread.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>

#include <atomic>
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
#include "tiers/index/rocksdb_options.h"
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

// Returns the bytes that the files below `dir` take on disk, preallocated ones included. Files that
// vanish meanwhile (compaction) count as nothing.
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
        database_(std::move(database)),
        db_(database_.db.get()),
        recency_(database_.families.size() > 1 ? database_.families[1].get() : nullptr) {
    // A stalled database says so at once instead of holding the index thread.
    commit_options_.no_slowdown = !options.may_wait;
    durable_options_.sync = true;
    scan_options_.total_order_seek = true;
    scan_options_.fill_cache = false;
    scan_options_.readahead_size = 256 * kKiB;
    CountFilesIfDue();
  }
  ~RocksDbIndex() override;

  absl::Status ClaimFor(const Uuid& device, bool create);

  absl::Status Commit(const IndexBatch& batch) override;
  absl::Status Sync(const StableMark& mark) override;
  absl::StatusOr<StableMark> ReadStableMark() override;
  absl::StatusOr<ScanResult> Scan(absl::FunctionRef<bool(const IndexRecord&)> visit) override;
  absl::Status SaveRecency(std::span<const RecencyDelta> deltas) override;
  absl::Status ScanRecency(absl::FunctionRef<bool(const RecencyDelta&)> visit) override;
  absl::Status PutMeta(absl::string_view name, absl::string_view value) override;
  absl::Status EraseMeta(absl::string_view name) override;
  absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view name) override;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ListMeta(
      absl::string_view prefix) override;
  uint64_t disk_bytes() const override { return disk_bytes_; }
  IndexStats stats() const override {
    IndexStats stats = ReadRocksDbStats(database_);
    stats.log_damages = log_damages_;
    return stats;
  }

 private:
  absl::Status Wrap(absl::string_view what, const rocksdb::Status& status) const {
    return FromRocks(dir_, what, status);
  }
  // The same for a write. After a write that failed, and was not only refused for now, the index
  // takes no others.
  absl::Status WrapWrite(absl::string_view what, const rocksdb::Status& status) {
    absl::Status wrapped = Wrap(what, status);
    if (IsFailedRead(status)) {  // refused for that: nothing was written
      read_failed_ = true;
      return absl::UnavailableError(wrapped.message());
    }
    if (!wrapped.ok() && !absl::IsUnavailable(wrapped)) write_failed_ = true;
    return wrapped;
  }
  // Called before each write: releases compactions, as it may need one, and after a failed read has
  // RocksDB go on. Unavailable: the read failed again.
  absl::Status BeginWrite() {
    database_.env->ReleaseCompactions();
    if (!read_failed_.exchange(false)) return absl::OkStatus();
    const rocksdb::Status resumed = db_->Resume();
    if (!resumed.ok()) read_failed_ = true;
    return WrapWrite("go on after a failed read", resumed);
  }
  // Writes, but is refused where it would wait.
  absl::Status WriteNow(absl::string_view what, rocksdb::WriteBatch& writes);
  // Reads a value. Returns false if there is none.
  absl::StatusOr<bool> Read(absl::string_view key, std::string* value);
  // The work of Scan's own thread. OK also when nobody takes any more.
  absl::Status ReadRecords(RecordPipe& pipe);
  // Reads the directory, so only for callers that may wait for the disk anyway.
  void CountFilesIfDue();

  const std::string dir_;
  const Clock* const clock_;
  const uint64_t log_damages_;
  const uint64_t recount_after_bytes_;
  Database database_;
  rocksdb::DB* const db_;                       // provides its own synchronization
  rocksdb::ColumnFamilyHandle* const recency_;  // null: one that is only looked at has none
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
    AbandonedDatabases::Get().Add(std::move(database_));
  } else {
    database_.families.clear();
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
  KVKEEP_RETURN_IF_ERROR(BeginWrite());
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
  KVKEEP_CHECK(recency_ != nullptr || batch.forgotten.empty());
  for (const CommitSequence sequence : batch.forgotten) {
    const rocksdb::Status added = writes.Delete(recency_, EncodeRecencyKey(sequence));
    if (!added.ok()) return Wrap("fill batch", added);
  }
  return WriteNow("commit", writes);
}

absl::Status RocksDbIndex::WriteNow(absl::string_view what, rocksdb::WriteBatch& writes) {
  KVKEEP_RETURN_IF_ERROR(BeginWrite());
  written_bytes_ += writes.GetDataSize();
  absl::Status written = WrapWrite(what, db_->Write(commit_options_, &writes));
  CountFilesIfDue();
  return written;
}

absl::Status RocksDbIndex::SaveRecency(std::span<const RecencyDelta> deltas) {
  KVKEEP_CHECK(deltas.size() <= kMostRecencyDeltas);
  KVKEEP_CHECK(recency_ != nullptr);
  rocksdb::WriteBatch writes;
  for (const RecencyDelta& delta : deltas) {
    const std::string key = EncodeRecencyKey(delta.sequence);
    const rocksdb::Status added =
        delta.recency.has_value()
            ? writes.Put(recency_, key, EncodeRecencyValue(*delta.recency))
            : writes.Delete(recency_, key);
    if (!added.ok()) return Wrap("fill batch", added);
  }
  return WriteNow("save recency", writes);
}

absl::Status RocksDbIndex::ScanRecency(absl::FunctionRef<bool(const RecencyDelta&)> visit) {
  KVKEEP_CHECK(recency_ != nullptr);
  const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(scan_options_, recency_));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    const auto delta = DecodeRecency(ToView(it->key()), ToView(it->value()));
    if (delta.has_value() && !visit(*delta)) break;
  }
  return Wrap("scan recency", it->status());
}

absl::Status RocksDbIndex::Sync(const StableMark& mark) {
  // Writes the mark only after the batches it vouches for are safe, and answers when it is safe
  // itself. Syncs by an empty write, in line with commits, so that no commit can fail between its
  // check and its sync. With SyncWAL one could, which ends the process in a build with asserts.
  KVKEEP_RETURN_IF_ERROR(BeginWrite());
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
  rocksdb::WriteBatch writes;
  const std::string key = absl::StrCat(std::string(1, kMetaPrefix), name);
  const rocksdb::Status added = writes.Put(key, ToSlice(value));
  return added.ok() ? WriteNow("write named value", writes) : Wrap("fill batch", added);
}

absl::Status RocksDbIndex::EraseMeta(absl::string_view name) {
  rocksdb::WriteBatch writes;
  const rocksdb::Status added = writes.Delete(absl::StrCat(std::string(1, kMetaPrefix), name));
  return added.ok() ? WriteNow("erase named value", writes) : Wrap("fill batch", added);
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

// Returns the status of an open. Files of ours that RocksDB does not know, or calls a wrong
// argument, are damaged: DataLoss.
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
  Database database{.env = std::make_unique<IndexEnv>(nullptr)};
  rocksdb::Options options = DatabaseOptions({}, database.env.get());
  options.wal_recovery_mode = log_mode;
  // An index of a version without the second family may be looked at, too.
  std::vector<std::string> names;
  const rocksdb::Status listed = rocksdb::DB::ListColumnFamilies(options, dir, &names);
  if (!listed.ok()) return OpenError(dir, listed);
  const bool recency = std::find(names.begin(), names.end(), kRecencyFamily) != names.end();
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::OpenForReadOnly(
      options, dir, Families(options, recency), &families, &raw);
  database.db.reset(raw);
  for (rocksdb::ColumnFamilyHandle* const family : families) database.families.emplace_back(family);
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
  Database database{.env = std::make_unique<IndexEnv>(options.file_system)};
  // A start needs every core to read and use the records. So compactions found at an open wait for
  // the first write, which may need them.
  database.env->HoldCompactions();
  rocksdb::Options settings = DatabaseOptions(options, database.env.get());
  const auto damage = std::make_shared<DamageOfLogs>();
  settings.info_log = damage;
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened =
      rocksdb::DB::Open(settings, dir, Families(settings, /*recency=*/true), &families, &raw);
  database.db.reset(raw);
  for (rocksdb::ColumnFamilyHandle* const family : families) database.families.emplace_back(family);
  if (!opened.ok()) return damaged.status().ok() ? OpenError(dir, opened) : damaged.status();
  damaged.Remove();
  // Otherwise a damaged file would show in the middle of the scan, when the device counts as open.
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
  // Opens it first as strictly as a healthy log allows, then as the daemon does.
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
