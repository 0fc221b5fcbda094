#include "tiers/index/table_file.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/index/records.h"
#include "tiers/index/rocksdb_index.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

const Uuid kTableDevice = *Uuid::FromBytes("this device");

// Makes an index whose records lie in one table file; returns its name.
std::string MakeTable(const std::string& dir) {
  {
    const auto index = OpenRocksDbIndex(dir, kTableDevice, {.create = true}).value();
    IndexBatch batch;
    for (uint32_t n = 0; n < 100; ++n) batch.adds.push_back(NumberedRecord(n));
    REQUIRE(index->Commit(batch).ok());
  }
  REQUIRE(OpenRocksDbIndex(dir, kTableDevice, {}).ok());  // replays the log into a table
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".sst") return entry.path().string();
  }
  return "";
}

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void FlipHighBit(const std::string& path, std::string bytes, size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 0x80);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

TEST_CASE("a bit that flips in a table's properties is damage, found before RocksDB opens it") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index", table = MakeTable(dir);
  REQUIRE_FALSE(table.empty());
  REQUIRE(CheckTableFiles(dir).ok());
  const std::string bytes = Read(table);
  // The block, then five bytes of trailer, then three bytes and this name: the metaindex.
  const size_t named = bytes.rfind("rocksdb.properties");
  const size_t first = bytes.find("rocksdb.block.based.table.index.type");
  REQUIRE((first != std::string::npos && named != std::string::npos && first < named));
  size_t found = 0, passed = 0;
  for (size_t at = first; at < named - 3; ++at) {
    FlipHighBit(table, bytes, at);
    const absl::Status status = CheckTableFiles(dir);
    found += absl::IsDataLoss(status);
    passed += status.ok();
  }
  CHECK(found == named - 3 - first);
  CHECK(passed == 0);
  // The bit that makes it a hash index, over which an assert of RocksDB's ends the process.
  FlipHighBit(table, bytes, named - 3 - 5 - 1);
  CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir, kTableDevice, {}).status()));
  CHECK(absl::IsDataLoss(InspectRocksDbIndex(dir, kTableDevice).status()));
  FlipHighBit(table, bytes, 0);  // faults that RocksDB finds are left to it
  CHECK(CheckTableFiles(dir).ok());
  CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir, kTableDevice, {}).status()));
}

TEST_CASE("tables are written in format 5, whatever RocksDB would choose") {
  const ScratchDir scratch;
  const std::string bytes = Read(MakeTable(scratch / "index"));
  constexpr size_t kMagic = 8, kVersion = 4;  // a footer's last fields, little-endian
  REQUIRE(bytes.size() > kMagic + kVersion);
  CHECK(bytes.substr(bytes.size() - kMagic) == "\xf7\xcf\xf4\x85\xb7\x41\xe2\x88");
  CHECK(bytes.substr(bytes.size() - kMagic - kVersion, kVersion) == std::string("\5\0\0\0", 4));
}

TEST_CASE("a footer that names a block beyond the file is damage, not the end of the process") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index", table = MakeTable(dir);
  std::string bytes = Read(table);
  constexpr size_t kFooter = 53;
  for (const char below : {0, 1, 4}) {  // the largest number that a varint holds, and a bit less
    std::string handle("\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    handle[1] = static_cast<char>(handle[1] - below);
    bytes.replace(bytes.size() - kFooter + 1, handle.size(), handle);
    std::ofstream(table, std::ios::binary | std::ios::trunc) << bytes;
    CHECK(absl::IsDataLoss(CheckTableFiles(dir)));
    CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir, kTableDevice, {}).status()));
  }
}

TEST_CASE("a damaged table that no index names is removed, one that it names stays where it was") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index", table = MakeTable(dir);
  const std::string bytes = Read(table);
  const size_t at = bytes.find("rocksdb.block.based.table.index.type");
  const std::string left = dir + "/000999.sst";
  FlipHighBit(left, bytes, at);  // as a power cut leaves an unfinished one
  CHECK(absl::IsDataLoss(CheckTableFiles(dir)));
  REQUIRE(OpenRocksDbIndex(dir, kTableDevice, {}).ok());
  CHECK_FALSE(fs::exists(left));
  CHECK(CheckTableFiles(dir).ok());

  FlipHighBit(table, bytes, at);
  CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir, kTableDevice, {}).status()));
  CHECK(Read(table).size() == bytes.size());
  fs::rename(table, table + ".damaged");  // as a process leaves it that dies meanwhile
  CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir, kTableDevice, {}).status()));
  CHECK(fs::exists(table));

  fs::create_directories(table + ".damaged/in the way");
  CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir, kTableDevice, {}).status()));
  CHECK(fs::exists(table));
}

TEST_CASE("a table file that is cut short anywhere is left to RocksDB, which refuses it") {
  const ScratchDir scratch;
  const std::string dir = scratch / "index", table = MakeTable(dir);
  const std::string bytes = Read(table);
  for (const size_t kept : {size_t{0}, size_t{20}, bytes.size() / 2, bytes.size() - 1}) {
    std::ofstream(table, std::ios::binary | std::ios::trunc) << bytes.substr(0, kept);
    CHECK(CheckTableFiles(dir).ok());
    CHECK(absl::IsDataLoss(OpenRocksDbIndex(dir, kTableDevice, {}).status()));
  }
  CHECK(CheckTableFiles(scratch / "nowhere").ok());
}

}  // namespace kvkeep
