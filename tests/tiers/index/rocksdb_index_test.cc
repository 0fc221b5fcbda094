#include "tiers/index/rocksdb_index.h"

#include <absl/strings/match.h>
#include <rocksdb/comparator.h>
#include <rocksdb/db.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/index/raw_database.h"
#include "tests/tiers/index/records.h"
#include "tests/tiers/index/run_child.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

const Uuid kDevice = *Uuid::FromBytes("this device");
const Uuid kBoot = *Uuid::FromBytes("this boot");

std::unique_ptr<ChunkIndex> Open(const std::string& dir, bool create = false) {
  absl::StatusOr<std::unique_ptr<ChunkIndex>> index =
      OpenRocksDbIndex(dir, kDevice, {.create = create, .write_buffer_bytes = kMiB});
  INFO(index.status().ToString());
  REQUIRE(index.ok());
  return *std::move(index);
}

// Commits, and repeats while the database is stalled, as a busy machine may flush slowly.
void Commit(ChunkIndex& index, const IndexBatch& batch) {
  absl::Status committed = index.Commit(batch);
  while (absl::IsUnavailable(committed)) {
    usleep(1000);  // for RocksDB to flush
    committed = index.Commit(batch);
  }
  INFO(committed.ToString());
  REQUIRE(committed.ok());
}

void Add(ChunkIndex& index, uint32_t from, uint32_t to) {
  IndexBatch batch;
  for (uint32_t n = from; n < to; ++n) batch.adds.push_back(NumberedRecord(n));
  Commit(index, batch);
}

// Flips one bit in the middle of every file whose name contains `part`. Returns how many files.
int Damage(const std::string& dir, const std::string& part) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StrContains(name, part) || fs::file_size(entry) == 0) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(fs::file_size(entry) / 2);
    file.seekg(middle);
    const char byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(middle);
    file.put(byte);
    ++files;
  }
  return files;
}

}  // namespace

TEST_CASE("an index gives back after reopening what was committed, and not what was removed") {
  ScratchDir dir;
  {
    const auto index = Open(dir / "index", /*create=*/true);
    Add(*index, 0, 100);
    IndexBatch batch;
    batch.removes = {NumberedRecord(7).id, NumberedRecord(4711).id};
    batch.adds = {NumberedRecord(100)};
    REQUIRE(index->Commit(batch).ok());
    CHECK(index->Commit({}).ok());
  }
  const RecordMap found = ReadAll(*Open(dir / "index"));
  CHECK(found.size() == 100);
  CHECK_FALSE(found.contains(NumberedRecord(7).id));
  for (const auto& [id, record] : found) CHECK(record == NumberedRecord(id.part.value()));
}

TEST_CASE("a scan stops when the visitor has seen enough") {
  ScratchDir dir;
  const auto index = Open(dir / "index", /*create=*/true);
  Add(*index, 0, 10);
  int seen = 0;
  const auto scanned = index->Scan([&](const IndexRecord&) { return ++seen < 3; });
  REQUIRE(scanned.ok());
  CHECK(scanned->records == 3);
  CHECK(seen == 3);
}

// The test below runs this in a process of its own, with the directory in the environment. (A
// forked child would lack RocksDB's threads.)
TEST_CASE("child: commits until it is killed", "[.child]") {
  const auto index = Open(IndexDirOfChild(), /*create=*/true);
  Add(*index, 0, 500);
  REQUIRE(index->Sync({kBoot, CommitSequence(499)}).ok());
  for (uint32_t n = 500; n < 20'000; n += 100) Add(*index, n, n + 100);
  REQUIRE(index->PutMeta("last", "value").ok());
  kill(getpid(), SIGKILL);
}

TEST_CASE("what was committed outlives kill -9, without a sync") {
  ScratchDir dir;
  const std::string index_dir = dir / "index";
  RunUntilKilled("child: commits until it is killed", index_dir);

  const auto index = Open(index_dir);
  CHECK(ReadAll(*index).size() == 20'000);
  CHECK(index->GetMeta("last")->value() == "value");
  const auto mark = index->ReadStableMark();
  REQUIRE(mark.ok());
  CHECK(mark->boot_id == kBoot);
  CHECK(mark->sequence == CommitSequence(499));
}

TEST_CASE("the stable mark is zero at first and the last one synced afterwards") {
  ScratchDir dir;
  auto index = Open(dir / "index", /*create=*/true);
  CHECK(index->ReadStableMark()->boot_id.is_zero());
  CHECK(index->ReadStableMark()->sequence == CommitSequence(0));
  REQUIRE(index->Sync({kBoot, CommitSequence(5)}).ok());
  REQUIRE(index->Sync({kBoot, CommitSequence(9)}).ok());
  index.reset();
  index = Open(dir / "index");
  CHECK(index->ReadStableMark()->boot_id == kBoot);
  CHECK(index->ReadStableMark()->sequence == CommitSequence(9));
}

TEST_CASE("named values are kept apart from records and found by prefix") {
  ScratchDir dir;
  auto index = Open(dir / "index", /*create=*/true);
  Add(*index, 0, 3);
  REQUIRE(index->PutMeta("ns/a", "1").ok());
  REQUIRE(index->PutMeta("ns/b", std::string("2\0x", 3)).ok());
  REQUIRE(index->PutMeta("epoch", "3").ok());
  REQUIRE(index->PutMeta("ns/a", "4").ok());
  index.reset();
  index = Open(dir / "index");
  const auto listed = index->ListMeta("ns/");
  REQUIRE(listed.ok());
  REQUIRE(listed->size() == 2);
  CHECK((*listed)[0] == std::make_pair(std::string("ns/a"), std::string("4")));
  CHECK((*listed)[1].second == std::string("2\0x", 3));
  CHECK(index->ListMeta("")->size() == 3);
  CHECK_FALSE(index->GetMeta("ns/")->has_value());
  CHECK(ReadAll(*index).size() == 3);
}

TEST_CASE("named values have limits, and an error names them") {
  ScratchDir dir;
  const auto index = Open(dir / "index", /*create=*/true);
  CHECK(absl::IsInvalidArgument(index->PutMeta("", "v")));
  CHECK(absl::IsInvalidArgument(index->PutMeta(std::string(1025, 'n'), "v")));
  CHECK(absl::IsInvalidArgument(index->PutMeta("n", std::string(kMaxMetaBytes + 1, 'v'))));
}

TEST_CASE("the index of another device is refused") {
  ScratchDir dir;
  Open(dir / "index", /*create=*/true);
  const Uuid other = *Uuid::FromBytes("another device");
  for (const bool create : {false, true}) {
    const auto opened = OpenRocksDbIndex(dir / "index", other, {.create = create});
    CHECK(absl::IsFailedPrecondition(opened.status()));
    CHECK(absl::StrContains(opened.status().message(), other.ToHex()));
  }
}

TEST_CASE("an index that is open already is unavailable") {
  ScratchDir dir;
  const auto index = Open(dir / "index", /*create=*/true);
  CHECK(absl::IsUnavailable(OpenRocksDbIndex(dir / "index", kDevice, {}).status()));
}

TEST_CASE("a lost index is data loss, never an empty one") {
  ScratchDir dir;
  CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir / "index", kDevice, {}).status()));
  Open(dir / "index", /*create=*/true);
  fs::remove(dir / "index/CURRENT");
  CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir / "index", kDevice, {}).status()));
}

TEST_CASE("damaged files are an error when the index is opened, never wrong records") {
  for (const char* part : {".sst", "CURRENT", "MANIFEST"}) {
    ScratchDir dir;
    {
      const auto index = Open(dir / "index", /*create=*/true);
      for (uint32_t n = 0; n < 40'000; n += 1000) Add(*index, n, n + 1000);
      REQUIRE(index->Sync({kBoot, CommitSequence(40'000)}).ok());
    }
    INFO(part);
    REQUIRE(Damage(dir / "index", part) > 0);
    CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir / "index", kDevice, {}).status()));
  }
}

namespace {

// Flips a bit of every data block in the first half of each table: the description of a table lies
// at its end.
void DamageDataBlocks(const std::string& dir) {
  int tables = 0;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() != ".sst") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto end = static_cast<std::streamoff>(fs::file_size(entry) / 2);
    for (std::streamoff at = 16; at < end; at += 2048) {
      file.seekg(at);
      const char byte = static_cast<char>(file.get() ^ 0x40);
      file.seekp(at);
      file.put(byte);
    }
    ++tables;
  }
  REQUIRE(tables > 0);
}

}  // namespace

TEST_CASE("tables that rot under an open index are an error of every call that reads them") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index";
  {
    const auto index = Open(dir, /*create=*/true);
    Add(*index, 0, 3000);
    REQUIRE(index->PutMeta("name", "value").ok());
    REQUIRE(index->Sync({kBoot, CommitSequence(3000)}).ok());
  }
  {
    const auto index = Open(dir);  // replays the log into a table, which is not merged with another
    REQUIRE(ReadAll(*index).size() == 3000);
    DamageDataBlocks(dir);
    CHECK(absl::IsDataLoss(index->ReadStableMark().status()));
    CHECK(absl::IsDataLoss(index->GetMeta("name").status()));
    CHECK(absl::IsDataLoss(index->ListMeta("n").status()));
    const auto scanned = index->Scan([](const IndexRecord&) { return true; });
    CHECK(absl::IsDataLoss(scanned.status()));
  }
  // Creating an index where one exists reads its owner.
  const auto again = OpenRocksDbIndex(dir, kDevice, {.create = true, .write_buffer_bytes = kMiB});
  INFO(again.status().ToString());
  CHECK(absl::IsDataLoss(again.status()));
}

TEST_CASE("an index that would have to wait for its disk refuses a batch at once, for a while") {
  const ScratchDir scratch;
  const auto index = OpenRocksDbIndex(scratch / "index", kDevice,
                                      {.create = true, .write_buffer_bytes = 64 * kKiB});
  REQUIRE(index.ok());
  // Each is several buffers large.
  uint32_t committed = 0;
  absl::Status last;
  for (int batch = 0; batch < 1000 && last.ok(); ++batch) {
    IndexBatch adds;
    for (uint32_t n = 0; n < 2000; ++n) adds.adds.push_back(NumberedRecord(committed + n));
    last = (*index)->Commit(adds);
    if (last.ok()) committed += 2000;
  }
  INFO(last.ToString());
  CHECK(absl::IsUnavailable(last));
  Add(**index, committed, committed + 1);
  CHECK(ReadAll(**index).size() == committed + 1);
}

TEST_CASE("an index that may wait takes every batch, however far behind its disk is") {
  const ScratchDir scratch;
  const auto index =
      OpenRocksDbIndex(scratch / "index", kDevice,
                       {.create = true, .write_buffer_bytes = 64 * kKiB, .may_wait = true});
  REQUIRE(index.ok());
  uint32_t committed = 0;
  while ((*index)->stats().slowed_writes + (*index)->stats().stopped_writes == 0) {
    IndexBatch batch;
    for (uint32_t n = 0; n < 2000; ++n) batch.adds.push_back(NumberedRecord(committed++));
    REQUIRE((*index)->Commit(batch).ok());
    REQUIRE(committed < 2'000'000);
  }
  CHECK(ReadAll(**index).size() == committed);
}

TEST_CASE("a torn write-ahead log gives back a beginning of what was committed") {
  ScratchDir dir;
  {
    const auto index = Open(dir / "index", /*create=*/true);
    for (uint32_t n = 0; n < 1000; ++n) Add(*index, n, n + 1);
  }
  int logs = 0;
  for (const auto& entry : fs::directory_iterator(dir / "index")) {
    if (entry.path().extension() != ".log") continue;
    fs::resize_file(entry, fs::file_size(entry) / 2);
    ++logs;
  }
  REQUIRE(logs == 1);
  const RecordMap found = ReadAll(*Open(dir / "index"));
  CHECK(found.size() > 100);
  CHECK(found.size() < 900);
  for (uint32_t n = 0; n < found.size(); ++n) CHECK(found.contains(NumberedRecord(n).id));
}

TEST_CASE("damage inside the write-ahead log is told, an end in the middle of an entry is none") {
  ScratchDir dir;
  {
    const auto index = Open(dir / "index", /*create=*/true);
    for (uint32_t n = 0; n < 1000; ++n) Add(*index, n, n + 1);
    REQUIRE(index->Sync({.boot_id = kBoot, .sequence = CommitSequence(1000)}).ok());
    CHECK(index->stats().log_damages == 0);
  }
  const auto log = [&dir] {
    std::vector<fs::path> logs;
    for (const auto& entry : fs::directory_iterator(dir / "index")) {
      if (entry.path().extension() == ".log" && entry.file_size() > 0) logs.push_back(entry.path());
    }
    REQUIRE(logs.size() == 1);
    return logs.front();
  };
  const std::string kept = dir / "kept";
  fs::copy(dir / "index", kept, fs::copy_options::recursive);
  // A log that is cut off at any byte of an entry is sound.
  const uint64_t bytes = fs::file_size(log());
  for (const uint64_t cut : {uint64_t{1}, uint64_t{5}, uint64_t{50}, bytes / 2, bytes / 2 + 3}) {
    fs::remove_all(dir / "index");
    fs::copy(kept, dir / "index", fs::copy_options::recursive);
    fs::resize_file(log(), bytes - cut);
    INFO("cut by " << cut);
    CHECK(Open(dir / "index")->stats().log_damages == 0);
  }
  for (const uint64_t at : {bytes / 4, bytes / 2}) {
    INFO("byte " << at << " of " << bytes);
    fs::remove_all(dir / "index");
    fs::copy(kept, dir / "index", fs::copy_options::recursive);
    {
      std::fstream file(log(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const int was = file.peek();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(was ^ 1));
      REQUIRE(file.good());
    }
    {
      const auto index = Open(dir / "index");
      CHECK(index->stats().log_damages > 0);
      CHECK(ReadAll(*index).size() < 600);
    }
    CHECK(Open(dir / "index")->stats().log_damages == 0);  // the rest is sound
  }
}

TEST_CASE("undecodable records are counted and the rest is served") {
  ScratchDir dir;
  Add(*Open(dir / "index", /*create=*/true), 0, 5);
  {
    RawDatabase raw(dir / "index");
    raw.Plant(absl::StrCat("r", EncodeRecordKey(NumberedRecord(2).id)), "junk");
    raw.Plant("rjunk", EncodeRecordValue(NumberedRecord(2)));
  }
  const auto scanned = Open(dir / "index")->Scan([](const IndexRecord&) { return true; });
  REQUIRE(scanned.ok());
  CHECK(scanned->records == 4);
  CHECK(scanned->undecodable == 2);
}

TEST_CASE("files of the index stay small under churn, and disk_bytes follows them") {
  ScratchDir dir;
  ManualClock clock;
  auto index = OpenRocksDbIndex(dir / "index", kDevice,
                                {.create = true, .write_buffer_bytes = kMiB, .clock = &clock});
  REQUIRE(index.ok());
  const uint64_t empty = (*index)->disk_bytes();
  CHECK(empty > 0);
  Commit(**index, {.adds = {NumberedRecord(500'000)}});
  CHECK((*index)->disk_bytes() == empty);  // little was written, and no time has passed
  Commit(**index, {.removes = {NumberedRecord(500'000).id}});
  // 200,000 records pass through (about 26 MB of log), never more than 2,000 at a time.
  for (uint32_t n = 0; n < 200'000; n += 1000) {
    IndexBatch batch;
    for (uint32_t i = n; i < n + 1000; ++i) {
      batch.adds.push_back(NumberedRecord(i));
      if (i >= 2000) batch.removes.push_back(NumberedRecord(i - 2000).id);
    }
    Commit(**index, batch);
  }
  CHECK((*index)->disk_bytes() > empty);  // much was written
  clock.Advance(std::chrono::seconds(2));
  const std::string stranger = dir / "index/stranger";
  std::ofstream(stranger).close();
  std::filesystem::resize_file(stranger, 64 * kMiB);
  CHECK((*index)->disk_bytes() < 64 * kMiB);  // the question reads no file
  REQUIRE((*index)->Sync({}).ok());
  CHECK((*index)->disk_bytes() > 64 * kMiB);
  std::filesystem::remove(stranger);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  do {  // a compaction under way has its files twice
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // for its thread
    clock.Advance(std::chrono::seconds(2));
    Commit(**index, {.adds = {NumberedRecord(500'000)}, .removes = {NumberedRecord(0).id}});
  } while ((*index)->disk_bytes() >= 20 * kMiB && std::chrono::steady_clock::now() < deadline);
  CHECK((*index)->disk_bytes() > empty);
  CHECK((*index)->disk_bytes() < 20 * kMiB);
  CHECK(ReadAll(**index).size() == 2001);
}

TEST_CASE("an index tells how much it holds, and where") {
  ScratchDir dir;
  const auto index = Open(dir / "index", /*create=*/true);
  Add(*index, 0, 100);
  const IndexStats little = index->stats();
  CHECK(little.memtable_bytes > 0);
  CHECK(little.table_bytes == 0);
  CHECK_FALSE(little.takes_no_writes);
  CHECK(little.background_errors == 0);
  uint32_t next = 100;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (index->stats().table_bytes == 0) {  // until the first one is written
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    Add(*index, next, next + 100);
    next += 100;
  }
}

TEST_CASE("an index that gets more than it can write says that it stalled") {
  ScratchDir dir;
  const auto index =
      OpenRocksDbIndex(dir / "index", kDevice, {.create = true, .write_buffer_bytes = 64 * kKiB});
  REQUIRE(index.ok());
  CHECK((*index)->stats().slowed_writes + (*index)->stats().stopped_writes == 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  uint32_t next = 0;
  while ((*index)->stats().slowed_writes + (*index)->stats().stopped_writes == 0) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    IndexBatch batch;
    for (uint32_t n = 0; n < 1000; ++n) batch.adds.push_back(NumberedRecord(next++));
    (*index)->Commit(batch).IgnoreError();
  }
}

TEST_CASE("options over their limits are refused by name") {
  CHECK(absl::StrContains(RocksDbIndexOptions{.write_buffer_bytes = 1}.Validate().message(),
                          "write_buffer_bytes"));
  CHECK(absl::StrContains(RocksDbIndexOptions{.max_open_files = 1}.Validate().message(),
                          "max_open_files"));
}

// The next test runs this.
TEST_CASE("child: commits when no file can grow any more", "[.child]") {
  const auto index = Open(IndexDirOfChild(), /*create=*/true);
  Add(*index, 0, 10);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit nothing{.rlim_cur = 1, .rlim_max = 1};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &nothing) == 0);
  for (uint32_t n = 10; n < 20; ++n) {
    CHECK_FALSE(index->Commit({.adds = {NumberedRecord(n)}}).ok());
    CHECK_FALSE(index->Sync({kBoot, CommitSequence(n)}).ok());
    CHECK_FALSE(index->PutMeta("name", "value").ok());
  }
  CHECK(ReadAll(*index).size() == 10);
}

// Each write failed before, also one to a log file of RocksDB's own.
TEST_CASE(
    "when nothing can be written any more, every call is an error and none ends the process") {
  ScratchDir dir;
  const int how = RunChild("child: commits when no file can grow any more", dir / "index");
  REQUIRE(WIFEXITED(how));
  CHECK(WEXITSTATUS(how) == 0);
  CHECK(ReadAll(*Open(dir / "index")).size() == 10);
}

namespace {

// Changes it without the index; no value: deleted.
void Plant(const std::string& dir, const std::string& key, std::optional<std::string> value) {
  RawDatabase(dir).Plant(key, value);
}

}  // namespace

TEST_CASE("files that RocksDB calls a wrong argument are damage, not the operator's mistake") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index";
  {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.comparator = rocksdb::ReverseBytewiseComparator();
    rocksdb::DB* raw = nullptr;
    REQUIRE(rocksdb::DB::Open(options, dir, &raw).ok());
    delete raw;
  }
  const absl::Status opened = OpenRocksDbIndex(dir, kDevice, {}).status();
  INFO(opened.ToString());
  CHECK(absl::IsDataLoss(opened));
  CHECK(absl::IsDataLoss(InspectRocksDbIndex(dir, kDevice).status()));
}

TEST_CASE("an index that is not this device's, or of another version, is refused by name") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index";
  Open(dir, /*create=*/true);
  const std::string good = std::string(1, 1) + std::string(kDevice.view());
  const auto refused = [&dir](absl::StatusCode code, const std::string& part) {
    for (const absl::Status& status : {OpenRocksDbIndex(dir, kDevice, {}).status(),
                                       InspectRocksDbIndex(dir, kDevice).status()}) {
      INFO(status.ToString());
      CHECK(status.code() == code);
      CHECK(absl::StrContains(status.message(), part));
    }
  };
  Plant(dir, "!identity", std::string(1, 2) + good.substr(1));
  refused(absl::StatusCode::kFailedPrecondition, "format version 2");
  Plant(dir, "!identity", good.substr(0, 16));
  refused(absl::StatusCode::kDataLoss, "identity is damaged");
  Plant(dir, "!identity", std::string(1, 1) + std::string(16, 'x'));
  refused(absl::StatusCode::kFailedPrecondition, "belongs to device");
  Plant(dir, "!identity", std::nullopt);
  refused(absl::StatusCode::kDataLoss, "has no identity");
  Plant(dir, "!identity", good);
  CHECK(ReadAll(*Open(dir)).empty());
}

TEST_CASE("a stable mark that does not decode is an error, and so are options out of limits") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index";
  Open(dir, /*create=*/true);
  Plant(dir, "#stable", std::string("short"));
  const absl::Status mark = Open(dir)->ReadStableMark().status();
  INFO(mark.ToString());
  CHECK(absl::IsDataLoss(mark));
  CHECK(absl::StrContains(mark.message(), dir));
  CHECK(
      absl::IsInvalidArgument(OpenRocksDbIndex(dir, kDevice, {.write_buffer_bytes = 1}).status()));
  CHECK(absl::IsInvalidArgument(OpenRocksDbIndex(dir, kDevice, {.max_open_files = 1}).status()));
}

}  // namespace kvkeep
