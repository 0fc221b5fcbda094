#include "tiers/fsck/fsck.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/file.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/tiers/fsck/store_on_disk.h"
#include "tests/tiers/index/raw_database.h"
#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"
#include "tiers/index/rocksdb_index.h"
#include "tiers/nvme/device_names.h"
#include "tiers/nvme/posix_file.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

// A device with chunks 1 to 6, of one block to three pieces, of which 6 was deleted; stopped. Table
// files and a log, since it was started twice.
StoreOnDisk& FilledDevice(StoreOnDisk& disk) {
  REQUIRE(disk.Start());
  disk.Put(1, 1);
  disk.Put(2, 100'000, 777);
  disk.Put(3, 3 * kMiB, 16 * kKiB);
  disk.Stop();
  REQUIRE(disk.Start());
  disk.Put(4, kMiB + 1);
  disk.Put(5, 4096);
  disk.Put(6, 50'000);
  disk.Delete(6);
  disk.Stop();
  return disk;
}

// Returns the only finding.
FsckFinding OnlyFinding(const FsckReport& report) {
  INFO(Text(report.findings));
  REQUIRE(report.findings.size() == 1);
  return report.findings[0];
}

}  // namespace

TEST_CASE("a device as a kill leaves it is clean, and its bytes add up") {
  StoreOnDisk disk;
  const FsckReport report = FilledDevice(disk).Check();
  INFO(Text(report.findings));
  CHECK(report.clean());
  CHECK(report.problems + report.notices == 0);
  CHECK(report.records == 5);
  CHECK(report.good_chunks == 5);
  CHECK(report.plain_chunks == 5);
  CHECK(report.bad_chunks + report.stale_chunks == 0);
  CHECK(report.data_bytes == 32 * kMiB);
  CHECK(report.label_bytes == 4 * kBlockBytes);
  uint64_t used = 0;
  for (const auto& [id, record] : disk.Records()) used += record.shape.blocks().value();
  CHECK(report.used_bytes == used * kBlockBytes);
  CHECK(report.orphaned_images == 1);  // 6 was deleted, but its image is still there
  CHECK(report.orphaned_bytes == 14 * kBlockBytes);
  CHECK(report.label_bytes + report.used_bytes + report.orphaned_bytes + report.free_bytes ==
        report.data_bytes);
  CHECK(report.read_bytes >= report.data_bytes - report.orphaned_bytes);
}

TEST_CASE("a check changes nothing: no byte, no time, no file") {
  StoreOnDisk disk;
  FilledDevice(disk).FlipInBlock(disk.Record(3).extents[0].first, 5000);
  const auto before = disk.Contents();
  CHECK_FALSE(disk.Check().clean());
  CHECK(disk.Contents() == before);
  fs::resize_file(disk.File("index/CURRENT"), 3);
  const auto broken = disk.Contents();
  CHECK_FALSE(disk.Check().clean());
  CHECK(disk.Contents() == broken);
}

TEST_CASE("a device in use is refused, and the store opens it when the check is over") {
  StoreOnDisk disk;
  FilledDevice(disk);
  REQUIRE(disk.Start());
  const absl::StatusOr<FsckReport> report = Fsck(disk.fsck_options());
  CHECK(absl::IsUnavailable(report.status()));
  CHECK(absl::StrContains(report.status().message(), "locked by another process"));
  CHECK(absl::IsUnavailable(RebuildIndex(disk.fsck_options()).status()));
  disk.Stop();
  CHECK(disk.Check().clean());
  CHECK(disk.Start());
}

TEST_CASE("the superblock's lock alone keeps a check away, as any data file's does") {
  StoreOnDisk disk;
  FilledDevice(disk);
  for (const char* name : {"superblock", "data.002"}) {
    const UniqueFd held(open(disk.File(name).c_str(), O_RDONLY));
    REQUIRE(flock(held.get(), LOCK_EX | LOCK_NB) == 0);
    INFO(name);
    CHECK(absl::IsUnavailable(Fsck(disk.fsck_options()).status()));
  }
  CHECK(disk.Check().clean());
}

TEST_CASE("what is no device of this store is refused") {
  StoreOnDisk disk;
  CHECK(absl::IsNotFound(Fsck(disk.fsck_options()).status()));
  FilledDevice(disk);
  FsckOptions options = disk.fsck_options();
  options.identity.store_uuid = *Uuid::FromBytes("other");
  CHECK(absl::IsFailedPrecondition(Fsck(options).status()));
  options = disk.fsck_options();
  options.identity.mac_key.fill(std::byte{'x'});
  CHECK(absl::IsFailedPrecondition(Fsck(options).status()));
  options = disk.fsck_options();
  options.threads = 65;
  CHECK(absl::IsInvalidArgument(Fsck(options).status()));
  fs::resize_file(disk.File(kSuperblockName), 0);
  CHECK(absl::IsFailedPrecondition(Fsck(disk.fsck_options()).status()));
}

TEST_CASE("a bit that flips in an image is found, with its place and its chunk") {
  StoreOnDisk disk;
  const IndexRecord record = FilledDevice(disk).Record(3);
  const uint64_t first = record.extents[0].first.value();
  struct Case {
    uint64_t byte;  // of the image
    FsckProblem problem;
    uint64_t block;  // of the image
    const char* what;
  };
  const Case cases[] = {
      {0, FsckProblem::kHeader, 0, "no image header"},
      {9, FsckProblem::kHeader, 0, "version"},
      {40, FsckProblem::kHeader, 0, "root checksum"},
      {2230, FsckProblem::kHeader, 0, "MAC"},
      {2760, FsckProblem::kHeader, 0, "MAC"},
      {4096, FsckProblem::kPayload, 1, "piece 0 of 3"},
      {4096 + 2 * kMiB + 5, FsckProblem::kPayload, 1 + 512, "piece 2 of 3"},
      {4096 + 3 * kMiB - 1, FsckProblem::kPayload, 1 + 512, "piece 2 of 3"},
      {4096 + 3 * kMiB, FsckProblem::kPayload, 1 + 768, "metadata tail"},
      {4096 + 3 * kMiB + 16 * kKiB - 1, FsckProblem::kPayload, 1 + 768, "metadata tail"},
  };
  for (const Case& at : cases) {
    disk.FlipInBlock(BlockNumber(first), at.byte);
    const FsckReport report = disk.Check();
    const FsckFinding finding = OnlyFinding(report);
    CHECK(finding.problem == at.problem);
    CHECK_FALSE(finding.notice);
    CHECK(finding.chunk == disk.Id(3));
    CHECK(finding.file == DataFileName(first / 2560));
    CHECK(finding.block == (first + at.block) % 2560);
    CHECK(absl::StrContains(finding.what, at.what));
    CHECK(report.complete);
    CHECK_FALSE(report.clean());
    CHECK(report.bad_chunks == 1);
    CHECK(report.good_chunks == 4);
    disk.FlipInBlock(BlockNumber(first), at.byte);
  }
  CHECK(disk.Check().clean());
}

TEST_CASE("the fast check finds a damaged header and reads no payload") {
  StoreOnDisk disk;
  const IndexRecord record = FilledDevice(disk).Record(3);
  disk.FlipInBlock(record.extents[0].first, 5000);
  const FsckReport payload = disk.Check(/*headers_only=*/true);
  CHECK(payload.clean());
  CHECK(payload.read_bytes < 64 * kBlockBytes);
  disk.FlipInBlock(record.extents[0].first, 50);
  CHECK(OnlyFinding(disk.Check(/*headers_only=*/true)).problem == FsckProblem::kHeader);
}

TEST_CASE("a damaged superblock, label, live map or index is found and named") {
  StoreOnDisk disk;
  FilledDevice(disk);
  disk.FlipBit(kSuperblockName, 4000);
  FsckReport report = disk.Check();
  CHECK(OnlyFinding(report).problem == FsckProblem::kSuperblock);
  CHECK_FALSE(report.complete);
  disk.FlipBit(kSuperblockName, 4000);

  disk.FlipBit("data.002", 17);
  CHECK(OnlyFinding(disk.Check()).problem == FsckProblem::kDataFile);
  CHECK(disk.Check().findings[0].file == "data.002");
  disk.FlipBit("data.002", 17);

  disk.FlipBit(kLiveMapName, 900);
  CHECK(OnlyFinding(disk.Check()).problem == FsckProblem::kLiveMap);
  disk.FlipBit(kLiveMapName, 900);

  size_t tables = 0;
  for (const auto& file : fs::directory_iterator(disk.File(kIndexName))) {
    const std::string name = absl::StrCat("index/", file.path().filename().string());
    const bool table = file.path().extension() == ".sst";
    if (!table && !absl::StrContains(name, "MANIFEST")) continue;
    tables += table ? 1 : 0;
    disk.FlipBit(name, 30);
    INFO(name);
    report = disk.Check();
    INFO(Text(report.findings));
    CHECK(CountOf(report.findings, FsckProblem::kIndex) == 1);
    disk.FlipBit(name, 30);
  }
  CHECK(tables > 0);
  CHECK(disk.Check().clean());
}

TEST_CASE("a damaged log is found, with the chunk that it loses") {
  StoreOnDisk disk;
  FilledDevice(disk);
  for (const auto& file : fs::directory_iterator(disk.File(kIndexName))) {
    if (file.path().extension() != ".log" || fs::file_size(file) == 0) continue;
    disk.FlipBit(absl::StrCat("index/", file.path().filename().string()), 100);
  }
  const FsckReport report = disk.Check();
  INFO(Text(report.findings));
  CHECK(CountOf(report.findings, FsckProblem::kLog) == 1);
  CHECK(CountOf(report.findings, FsckProblem::kLost) == 2);  // 4 and 5
  CHECK(report.records == 3);
}

TEST_CASE("data files that are missing, short, long or another's are found") {
  StoreOnDisk disk;
  FilledDevice(disk);
  fs::resize_file(disk.File("data.000"), 2 * kMiB);
  FsckReport report = disk.Check();
  INFO(Text(report.findings));
  CHECK(CountOf(report.findings, FsckProblem::kDataFile) == 1);
  CHECK(CountOf(report.findings, FsckProblem::kUnreadable) >= 1);
  CHECK(report.bad_chunks >= 1);
  CHECK(absl::StrContains(report.findings[0].what, "expected 10485760"));
  CHECK(absl::IsDataLoss(RebuildIndex(disk.fsck_options()).status()));
}

TEST_CASE("a data file of another place, and one that is longer than it should be") {
  StoreOnDisk disk;
  FilledDevice(disk);
  fs::resize_file(disk.File("data.003"), 3 * kMiB);
  FsckReport report = disk.Check();
  CHECK(OnlyFinding(report).notice);  // growing was cut short
  CHECK(report.clean());
  fs::resize_file(disk.File("data.003"), 2 * kMiB);
  fs::rename(disk.File("data.001"), disk.File("x"));
  fs::rename(disk.File("data.002"), disk.File("data.001"));
  fs::rename(disk.File("x"), disk.File("data.002"));
  report = disk.Check();
  INFO(Text(report.findings));
  REQUIRE(CountOf(report.findings, FsckProblem::kDataFile) == 2);
  CHECK(absl::StrContains(report.findings[0].what, "expected file 1"));
  fs::remove(disk.File("data.002"));
  CHECK(absl::StrContains(Text(disk.Check().findings), "no such file"));
}

TEST_CASE("records that overlap, lie outside, or do not decode are found") {
  StoreOnDisk disk;
  IndexRecord over = FilledDevice(disk).Record(2);
  over.id = disk.Id(20);
  over.shape = {.payload_bytes = 4096};
  over.sequence = CommitSequence(1000);
  over.extents = {{BlockNumber(over.extents[0].first.value() + 3), BlockCount(2)}};
  IndexRecord outside = over;
  outside.id = disk.Id(21);
  outside.extents = {{BlockNumber(32 * 256 - 1), BlockCount(2)}};
  IndexRecord label = over;
  label.id = disk.Id(22);
  label.extents = {{BlockNumber(2 * 2560), BlockCount(2)}};
  disk.CommitRecords({.adds = {over}});
  {
    const std::unique_ptr<ChunkIndex> index =
        OpenRocksDbIndex(disk.File(kIndexName), disk.Check().device, {}).value();
    REQUIRE(index->Commit({.adds = {outside, label}}).ok());
  }
  RawDatabase(disk.File(kIndexName))
      .Plant(absl::StrCat("r", EncodeRecordKey(disk.Id(23))), "nonsense");
  const FsckReport report = disk.Check();
  INFO(Text(report.findings));
  REQUIRE(CountOf(report.findings, FsckProblem::kOverlap) == 1);
  REQUIRE(CountOf(report.findings, FsckProblem::kExtent) == 2);
  REQUIRE(CountOf(report.findings, FsckProblem::kRecord) == 1);
  // Nothing of 20 is there, but its record is above the stable mark.
  CHECK(CountOf(report.findings, FsckProblem::kHeader, /*notice=*/true) == 1);
  CHECK(report.bad_chunks == 3);
  CHECK(report.stale_chunks == 1);
  CHECK(report.records == 9);
  for (const FsckFinding& finding : report.findings) {
    const std::string& what = finding.what;
    if (finding.problem == FsckProblem::kOverlap) {
      // Either of the two may be the later one.
      const ChunkId other = finding.chunk == disk.Id(20) ? disk.Id(2) : disk.Id(20);
      CHECK(absl::StrContains(what, other.ToString()));
    }
    if (finding.chunk == disk.Id(21)) CHECK(absl::StrContains(what, "beyond the device"));
    if (finding.chunk == disk.Id(22)) CHECK(absl::StrContains(what, "label"));
    if (finding.problem == FsckProblem::kRecord) CHECK(absl::StrContains(what, "version"));
    CHECK_FALSE(finding.to_do.empty());
  }
}

TEST_CASE("after a loss of power what was young is stale, and what was safe is damaged") {
  StoreOnDisk disk;
  IndexRecord young = FilledDevice(disk).Record(5);
  young.id = disk.Id(30);
  young.sequence = CommitSequence(1000);  // above the stable mark
  young.extents = {{BlockNumber(8000), BlockCount(2)}};
  disk.CommitRecords({.adds = {young}});
  FsckReport report = disk.Check();  // the same boot: its drive alone may have lost power
  CHECK(report.bad_chunks == 0);
  CHECK(report.stale_chunks == 1);
  CHECK(report.doubtful_chunks == 0);  // one of the good ones
  CHECK(report.clean());

  disk.boot_id = *Uuid::FromBytes("the next boot");
  report = disk.Check();
  INFO(Text(report.findings));
  CHECK(report.bad_chunks == 0);
  CHECK(report.stale_chunks == 1);
  CHECK(report.clean());
  CHECK(OnlyFinding(report).chunk == disk.Id(30));
  CHECK(OnlyFinding(report).notice);

  disk.FlipInBlock(disk.Record(1).extents[0].first, 4096);
  report = disk.Check();
  CHECK(report.bad_chunks == 1);
  CHECK(report.stale_chunks == 1);
  CHECK_FALSE(report.clean());
}

TEST_CASE("options out of their limits, and a directory that is no device, are refused by name") {
  StoreOnDisk disk;
  FilledDevice(disk);
  const auto refused = [&disk](void (*change)(FsckOptions&), const std::string& part) {
    FsckOptions options = disk.fsck_options();
    change(options);
    for (const absl::Status& status : {Fsck(options).status(), RebuildIndex(options).status()}) {
      INFO(status.ToString());
      CHECK_FALSE(status.ok());
      CHECK(absl::StrContains(status.message(), part));
    }
  };
  refused([](FsckOptions& o) { o.dir.clear(); }, "dir of the device");
  refused([](FsckOptions& o) { o.threads = 65; }, "threads is 65");
  refused([](FsckOptions& o) { o.max_findings = 0; }, "max_findings is 0");
  refused([](FsckOptions& o) { o.dir = "/"; }, "no kvkeep device");
}

TEST_CASE("what a loss of power left in doubt is told apart for good, as the daemon does") {
  StoreOnDisk disk;
  REQUIRE(disk.Start());
  for (uint64_t name = 1; name <= 3; ++name) disk.Put(name, 10'000);
  disk.Stop();
  CHECK(disk.Check().doubtful_chunks == 0);

  disk.boot_id = *Uuid::FromBytes("the next boot");
  FsckReport report = disk.Check();
  CHECK(report.doubtful_chunks == 3);
  CHECK(report.good_chunks == 3);
  CHECK(report.clean());

  REQUIRE(disk.Start());  // which reads the headers, and notes the doubt with its first sync
  disk.Put(4, 10'000);
  disk.Stop();
  report = disk.Check();
  CHECK(report.doubtful_chunks == 3);
  CHECK(report.good_chunks == 4);

  disk.FlipInBlock(disk.Record(2).extents[0].first, 5000);
  report = disk.Check();
  INFO(Text(report.findings));
  CHECK(report.doubtful_chunks == 2);
  CHECK(report.stale_chunks == 1);
  CHECK(OnlyFinding(report).notice);
  CHECK(report.clean());
  disk.FlipInBlock(disk.Record(4).extents[0].first, 5000);  // that one was synced since
  CHECK(disk.Check().bad_chunks == 1);
  REQUIRE(disk.Start());
  CHECK(disk.Get(1) == "hit");
  CHECK(disk.Get(2) == "miss");
}

TEST_CASE("an old record whose blocks are another image's now is stale after a power cut only") {
  // Where its image began, there is the header of the other, or a block of its payload.
  for (const uint64_t block : {0, 1, 300}) {
    INFO(block);
    StoreOnDisk disk;
    const IndexRecord other = FilledDevice(disk).Record(3);
    IndexRecord old = disk.Record(5);
    old.id = disk.Id(6);  // its removal was lost, and so was the other's later record
    old.sequence = CommitSequence(1);
    old.generation = Generation(77);
    old.extents = {{BlockNumber(other.extents[0].first.value() + block), BlockCount(2)}};
    disk.CommitRecords({.removes = {other.id}, .freed = {other.extents[0].first}});
    disk.CommitRecords({.adds = {old}});
    FsckReport report = disk.Check();
    CHECK(report.bad_chunks == 1);
    CHECK(report.stale_chunks == 0);
    CHECK_FALSE(report.clean());

    disk.boot_id = *Uuid::FromBytes("the next boot");
    for (const bool headers_only : {false, true}) {
      report = disk.Check(headers_only);
      INFO(Text(report.findings));
      CHECK(report.bad_chunks == 0);
      CHECK(report.stale_chunks == 1);
      CHECK(report.clean());
    }

    REQUIRE(disk.Start());  // which judges alike
    CHECK(disk.stale_records() == 1);
    CHECK(disk.Get(6) == "miss");
    CHECK(disk.Get(5) == "hit");
  }
}

TEST_CASE(
    "a chunk that the live map vouches for and the index has lost is found, and the reverse") {
  StoreOnDisk disk;
  const IndexRecord lost = FilledDevice(disk).Record(2);
  disk.CommitRecords({.removes = {lost.id}});  // without clearing its mark
  FsckReport report = disk.Check();
  CHECK(OnlyFinding(report).problem == FsckProblem::kLost);
  CHECK(OnlyFinding(report).chunk == disk.Id(2));
  disk.CommitRecords({.adds = {lost}});
  CHECK(disk.Check().clean());

  // Cleared, and then the daemon was killed.
  disk.CommitRecords({.freed = {lost.extents[0].first}});
  report = disk.Check();
  CHECK(OnlyFinding(report).problem == FsckProblem::kRemoved);
  CHECK(OnlyFinding(report).chunk == disk.Id(2));
  CHECK(OnlyFinding(report).notice);
  CHECK(report.clean());
  // The daemon believes its index: then both say the same.
  REQUIRE(disk.Start());
  disk.Stop();
  CHECK(disk.Check().notices == 0);
}

TEST_CASE("more records than a batch that the live map does not know are no kill's doing") {
  StoreOnDisk disk;
  const IndexRecord like = FilledDevice(disk).Record(5);
  IndexBatch batch;
  for (uint64_t i = 0; i < 65; ++i) {
    IndexRecord record = like;
    record.id = disk.Id(100 + i);
    record.extents = {{BlockNumber(6000 + 2 * i), BlockCount(2)}};
    batch.adds.push_back(record);
    batch.freed.push_back(record.extents[0].first);
  }
  disk.CommitRecords(batch);
  CHECK(CountOf(disk.Check().findings, FsckProblem::kRemoved) == 0);
  disk.CommitRecords(
      {.freed = std::vector<BlockNumber>(batch.freed.begin() + 1, batch.freed.end())});
  CHECK(CountOf(disk.Check().findings, FsckProblem::kRemoved, /*notice=*/true) == 64);
  disk.CommitRecords({.freed = batch.freed});
  CHECK(CountOf(disk.Check().findings, FsckProblem::kRemoved, /*notice=*/true) == 0);
  CHECK(CountOf(disk.Check().findings, FsckProblem::kRemoved) == 65);
  FsckOptions few = disk.fsck_options();
  few.max_findings = 3;
  CHECK(Fsck(few)->findings.size() == 3);
  CHECK(Fsck(few)->problems == disk.Check().problems);
}

TEST_CASE("images that nobody names are only counted, and none is looked for inside another") {
  StoreOnDisk disk;
  FilledDevice(disk);
  const uint64_t orphaned = disk.Check().orphaned_images;
  const std::vector<std::byte> inner = MakePayload(41, 1, 4096);
  std::vector<std::byte> outer = MakePayload(40, 1, 8 * kBlockBytes);
  const ImageHeader planted = disk.MakeHeader(41, inner, {{BlockNumber(6004), BlockCount(2)}}, 2);
  EncodeHeader(planted, disk.identity.mac_key,
               HeaderPage(outer.data() + 3 * kBlockBytes, kHeaderBytes));
  disk.WriteImage(disk.MakeHeader(40, outer, {{BlockNumber(6000), BlockCount(9)}}, 1), outer);
  const FsckReport report = disk.Check();
  INFO(Text(report.findings));
  CHECK(report.clean());
  CHECK(report.orphaned_images == orphaned + 1);
  // A copy at another place, and one under another key, are no images.
  const auto image = disk.ReadBlocks(BlockNumber(6000), 9 * kBlockBytes);
  disk.WriteBlocks(BlockNumber(7000), image);
  CHECK(disk.Check().orphaned_images == orphaned + 1);
}

TEST_CASE("the list of findings is bounded, their number is told") {
  StoreOnDisk disk;
  FilledDevice(disk);
  for (const uint64_t name : {1, 2, 3, 4, 5}) {
    disk.FlipInBlock(disk.Record(name).extents[0].first, 4096);
  }
  FsckOptions options = disk.fsck_options();
  options.max_findings = 2;
  const FsckReport report = Fsck(options).value();
  CHECK(report.findings.size() == 2);
  CHECK(report.problems == 5);
  CHECK(report.bad_chunks == 5);
}

namespace {

void PlantInIndex(const StoreOnDisk& disk, const std::string& key, const std::string& value) {
  RawDatabase(disk.File("index")).Plant(key, value);
}

}  // namespace

TEST_CASE("a stable mark that says nothing ends the check with a finding") {
  StoreOnDisk disk;
  FilledDevice(disk);
  PlantInIndex(disk, "#stable", "short");
  const FsckReport report = disk.Check();
  CHECK_FALSE(report.complete);
  CHECK(absl::StrContains(OnlyFinding(report).what, "stable mark is damaged"));
}

TEST_CASE("the index of another device is not checked as if it was this one's") {
  StoreOnDisk disk;
  FilledDevice(disk);
  PlantInIndex(disk, "!identity", absl::StrCat("\x01", std::string(16, 'x')));
  const absl::Status status = Fsck(disk.fsck_options()).status();
  INFO(status.ToString());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(absl::StrContains(status.message(), "belongs to device"));
}

TEST_CASE("records that cannot be read to their end end the check with a finding") {
  StoreOnDisk disk;
  REQUIRE(disk.Start());
  for (uint64_t name = 0; name < 80; ++name) disk.Put(name, 1);  // some blocks of a table
  disk.Stop();
  REQUIRE(disk.Start());  // from the log into a table
  disk.Stop();
  for (const auto& entry : fs::directory_iterator(disk.File("index"))) {
    if (entry.path().extension() != ".sst") continue;
    disk.FlipBit("index/" + entry.path().filename().string(), fs::file_size(entry) / 2);
  }
  const FsckReport report = disk.Check();
  INFO(Text(report.findings));
  CHECK_FALSE(report.complete);
  CHECK(CountOf(report.findings, FsckProblem::kIndex) > 0);
}

TEST_CASE("a superblock of another format version is refused by name") {
  StoreOnDisk disk;
  FilledDevice(disk);
  std::fstream file(disk.File("superblock"), std::ios::in | std::ios::out | std::ios::binary);
  std::string block(kBlockBytes, ' ');
  file.read(block.data(), kBlockBytes);
  block[8] = 99;
  const uint64_t sum = Xxh3(AsBytes(block).first(kBlockBytes - sizeof(uint64_t)));
  StoreAt<uint64_t>(reinterpret_cast<std::byte*>(block.data()) + kBlockBytes - sizeof(sum), sum);
  file.seekp(0);
  file.write(block.data(), kBlockBytes);
  file.flush();
  const absl::Status status = Fsck(disk.fsck_options()).status();
  INFO(status.ToString());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(absl::StrContains(status.message(), "format version 99"));
}

}  // namespace kvkeep
