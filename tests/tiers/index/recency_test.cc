// Recency in the index: the format of an entry, the column family, databases of the version before.
#include "tiers/index/recency.h"

#include <absl/strings/match.h>
#include <rocksdb/db.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/index/raw_database.h"
#include "tests/tiers/index/records.h"
#include "tests/tiers/index/run_child.h"
#include "tiers/index/rocksdb_index.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

const Uuid kRecencyDevice = *Uuid::FromBytes("this device");

std::unique_ptr<ChunkIndex> OpenIndex(const std::string& dir, bool create = false) {
  absl::StatusOr<std::unique_ptr<ChunkIndex>> index = OpenRocksDbIndex(
      dir, kRecencyDevice, {.create = create, .write_buffer_bytes = kMiB, .may_wait = true});
  INFO(index.status().ToString());
  REQUIRE(index.ok());
  return *std::move(index);
}

RecencyDelta Delta(uint64_t sequence, std::optional<uint64_t> recency) {
  return {CommitSequence(sequence), recency};
}

std::vector<RecencyDelta> ReadRecency(ChunkIndex& index) {
  std::vector<RecencyDelta> all;
  REQUIRE(index
              .ScanRecency([&all](const RecencyDelta& delta) {
                all.push_back(delta);
                return true;
              })
              .ok());
  return all;
}

void Save(ChunkIndex& index, const std::vector<RecencyDelta>& deltas) {
  REQUIRE(index.SaveRecency(deltas).ok());
}

}  // namespace

TEST_CASE("the format of recency is frozen") {
  CHECK(EncodeRecencyKey(CommitSequence(0x0102030405060708)) ==
        std::string("\1\2\3\4\5\6\7\10", 8));
  CHECK(EncodeRecencyValue(0) == std::string(1, '\0'));
  CHECK(EncodeRecencyValue(0x010203) == "\3\2\1");
  for (const uint64_t recency : {uint64_t{0}, uint64_t{255}, uint64_t{256}, UINT64_MAX}) {
    const RecencyDelta delta = Delta(7, recency);
    const std::string key = EncodeRecencyKey(delta.sequence), value = EncodeRecencyValue(recency);
    CHECK(DecodeRecency(key, value) == delta);
    CHECK(EncodedBytes(delta) == key.size() + value.size());
  }
  CHECK(EncodedBytes(Delta(7, std::nullopt)) == 8);
  CHECK_FALSE(DecodeRecency("short", "x").has_value());
  CHECK_FALSE(DecodeRecency(std::string(8, '\0'), "").has_value());
  CHECK_FALSE(DecodeRecency(std::string(8, '\0'), std::string(9, 'x')).has_value());
}

std::unique_ptr<ChunkIndex> SaveInTurn(const std::string& index_dir) {
  std::unique_ptr<ChunkIndex> index = OpenIndex(index_dir, /*create=*/true);
  REQUIRE(index->Commit({.adds = {NumberedRecord(1), NumberedRecord(2)}}).ok());
  Save(*index, {Delta(300, 1), Delta(1, 2), Delta(2, 3), Delta(40, 4)});
  Save(*index, {Delta(2, 9), Delta(40, std::nullopt)});
  CHECK(ReadRecency(*index) == std::vector{Delta(1, 2), Delta(2, 9), Delta(300, 1)});
  REQUIRE(
      index->Commit({.removes = {NumberedRecord(1).id}, .forgotten = {CommitSequence(1)}}).ok());
  return index;
}

TEST_CASE("child: saves recency in turn", "[.child]") {
  const auto index = SaveInTurn(IndexDirOfChild());
  kill(getpid(), SIGKILL);
}

TEST_CASE("recency comes back in the order of sequences, the last of each, without what has gone") {
  ScratchDir dir;
  SaveInTurn(dir / "index").reset();
  RunUntilKilled("child: saves recency in turn", dir / "killed");
  for (const char* name : {"index", "killed"}) {
    CHECK(ReadRecency(*OpenIndex(dir / name)) == std::vector{Delta(2, 9), Delta(300, 1)});
  }
}

TEST_CASE("a scan of recency stops when asked to, and passes by what does not decode") {
  ScratchDir dir;
  Save(*OpenIndex(dir / "index", /*create=*/true), {Delta(1, 1), Delta(2, 2), Delta(3, 3)});
  {
    RawDatabase raw(dir / "index");
    REQUIRE(raw.families() == 2);
    raw.Plant(1, EncodeRecencyKey(CommitSequence(2)), "longer than 8 bytes");
    raw.Plant(1, "x", "x");
  }
  const auto index = OpenIndex(dir / "index");
  CHECK(ReadRecency(*index) == std::vector{Delta(1, 1), Delta(3, 3)});
  int seen = 0;
  REQUIRE(index->ScanRecency([&seen](const RecencyDelta&) { return ++seen < 1; }).ok());
  CHECK(seen == 1);
}

TEST_CASE("an index of the version before gets the column family, and that version refuses it") {
  ScratchDir dir;
  {
    const auto index = OpenIndex(dir / "index", /*create=*/true);
    REQUIRE(index->Commit({.adds = {NumberedRecord(1)}}).ok());
    REQUIRE(index->PutMeta("recency", "as it was").ok());
  }
  MakeFormer(dir / "index");
  REQUIRE(RawDatabase(dir / "index").families() == 1);
  CHECK(InspectRocksDbIndex(dir / "index", kRecencyDevice).ok());
  CHECK(RawDatabase(dir / "index").families() == 1);  // only looked at
  {
    const auto index = OpenIndex(dir / "index");
    CHECK(ReadRecency(*index).empty());
    CHECK(index->GetMeta("recency")->value_or("") == "as it was");
    REQUIRE(index->EraseMeta("recency").ok());
    REQUIRE(index->EraseMeta("recency").ok());
    CHECK_FALSE(index->GetMeta("recency")->has_value());
    Save(*index, {Delta(1, 1)});
  }
  CHECK(InspectRocksDbIndex(dir / "index", kRecencyDevice).ok());
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status former = rocksdb::DB::Open(rocksdb::Options(), dir / "index", &raw);
  INFO(former.ToString());
  CHECK(absl::StrContains(former.ToString(), "Column families not opened: recency"));
}

TEST_CASE("child: commits after recency until a table is written", "[.child]") {
  const auto index = OpenIndex(IndexDirOfChild(), /*create=*/true);
  Save(*index, {Delta(1, 1)});
  for (uint32_t n = 0; index->stats().table_bytes == 0; n += 500) {
    IndexBatch batch;
    for (uint32_t i = n; i < n + 500; ++i) batch.adds.push_back(NumberedRecord(i));
    REQUIRE(index->Commit(batch).ok());
  }
  kill(getpid(), SIGKILL);
}

// Recency was saved early, and records went on until tables of them were written. Then the log
// holds neither any more.
TEST_CASE("when a table of records was written no log is kept for recency") {
  ScratchDir dir;
  RunUntilKilled("child: commits after recency until a table is written", dir / "killed");
  int damaged = 0;
  for (const auto& entry : fs::directory_iterator(dir / "killed")) {
    if (entry.path().extension() != ".log" || entry.file_size() < 100) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(20);
    file.write("damage", 6);
    ++damaged;
  }
  REQUIRE(damaged > 0);
  const auto index = OpenIndex(dir / "killed");
  CHECK(index->stats().log_damages > 0);
  CHECK(ReadRecency(*index) == std::vector{Delta(1, 1)});
}

}  // namespace kvkeep
