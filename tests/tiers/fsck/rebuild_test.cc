// A lost index is made anew from the images: with everything that was in it, and nothing else.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/tiers/fsck/store_on_disk.h"
#include "tiers/nvme/device_names.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

void LoseIndex(StoreOnDisk& disk) {
  for (const auto& file : fs::directory_iterator(disk.File(kIndexName))) {
    fs::resize_file(file.path(), fs::file_size(file) / 3);
  }
  const FsckReport report = disk.Check();
  CHECK(CountOf(report.findings, FsckProblem::kIndex) == 1);
  CHECK_FALSE(report.complete);
  CHECK(absl::StrContains(report.findings[0].to_do, "--rebuild-index"));
  REQUIRE_FALSE(disk.Start());
}

// Chunks 1 to `count` of 200,000 bytes.
void Fill(StoreOnDisk& disk, uint64_t count) {
  REQUIRE(disk.Start());
  for (uint64_t name = 1; name <= count; ++name) disk.Put(name, 200'000, 100);
}

std::string GetAll(StoreOnDisk& disk, uint64_t count) {
  std::string all;
  for (uint64_t name = 1; name <= count; ++name) all += disk.Get(name) == "hit" ? 'h' : '-';
  return all;
}

}  // namespace

TEST_CASE("a rebuilt index has the chunks of the lost one, and none that was deleted") {
  StoreOnDisk disk;
  Fill(disk, 6);
  disk.Delete(2);
  disk.Delete(5);
  disk.Stop();
  LoseIndex(disk);
  const RebuildReport report = disk.Rebuild();
  INFO(Text(report.findings));
  CHECK(report.problems == 0);
  CHECK(report.marked_images == 4);
  CHECK(report.chunks == 4);
  CHECK(report.chunk_bytes == 4 * 200'000);
  CHECK(disk.Check().clean());
  CHECK(disk.Check().orphaned_images == 2);  // the deleted ones, still whole
  REQUIRE(disk.Start());
  CHECK(GetAll(disk, 6) == "h-hh-h");
  disk.Put(2, 200'000);  // and it takes new ones
  disk.Stop();
  CHECK(disk.Check().clean());
  REQUIRE(disk.Start());
  CHECK(GetAll(disk, 6) == "hhhh-h");
}

TEST_CASE("a rebuilt index has nothing of what was cleared") {
  StoreOnDisk disk;
  Fill(disk, 4);
  disk.Clear();
  disk.Put(9, 5000);
  disk.Stop();
  LoseIndex(disk);
  CHECK(disk.Rebuild().chunks == 1);
  REQUIRE(disk.Start());
  CHECK(GetAll(disk, 4) == "----");
  CHECK(disk.Get(9) == "hit");
}

TEST_CASE("what was evicted stays away: nobody could have deleted it since") {
  StoreOnDisk disk;
  Fill(disk, 4);
  for (uint64_t name = 100; name < 130; ++name) disk.Put(name, kMiB);
  const std::string before = GetAll(disk, 4);
  CHECK(before == "----");
  disk.Stop();
  const size_t records = disk.Records().size();
  LoseIndex(disk);
  CHECK(disk.Rebuild().chunks == records);
  CHECK(disk.Check().clean());
}

TEST_CASE("a write-back that was never committed is no chunk after a rebuild") {
  StoreOnDisk disk;
  Fill(disk, 2);
  disk.Stop();
  const std::vector<std::byte> payload = MakePayload(3, 1, 4096);
  disk.WriteImage(disk.MakeHeader(3, payload, {{BlockNumber(6000), BlockCount(2)}}, 1), payload);
  disk.sizes[3] = {4096, 0};
  LoseIndex(disk);
  CHECK(disk.Rebuild().chunks == 2);
  REQUIRE(disk.Start());
  CHECK(GetAll(disk, 3) == "hh-");
}

TEST_CASE("a header planted in a payload stays payload") {
  StoreOnDisk disk;
  Fill(disk, 1);
  disk.Stop();
  // The worst case: a header with the right MAC, made for the very block on which it lies.
  const BlockNumber first(6000), planted_at(6003);
  const std::vector<std::byte> inner = MakePayload(51, 1, 4096);
  std::vector<std::byte> outer = MakePayload(50, 1, 8 * kBlockBytes);
  EncodeHeader(disk.MakeHeader(51, inner, {{planted_at, BlockCount(2)}}, 9), disk.identity.mac_key,
               HeaderPage(outer.data() + 2 * kBlockBytes, kHeaderBytes));
  std::copy(inner.begin(), inner.end(), outer.begin() + 3 * kBlockBytes);
  const ImageHeader header = disk.MakeHeader(50, outer, {{first, BlockCount(9)}}, 1);
  disk.WriteImage(header, outer);
  std::vector<std::byte> page = disk.ReadBlocks(first, kHeaderBytes);
  IndexRecord record{.id = disk.Id(50),
                     .shape = header.identity.shape,
                     .incarnation = Incarnation(1),
                     .generation = Generation(1),
                     .sequence = CommitSequence(50),
                     .root = HeaderRoot(ConstHeaderPage(page.data(), kHeaderBytes)),
                     .extents = {{first, BlockCount(9)}}};
  disk.CommitRecords({.adds = {record}});
  REQUIRE(disk.Check().clean());
  LoseIndex(disk);
  CHECK(disk.Rebuild().chunks == 2);
  CHECK(disk.Records().count(disk.Id(50)) == 1);
  CHECK(disk.Records().count(disk.Id(51)) == 0);
}

TEST_CASE("of two images that overlap the newer one wins, and of two of a chunk") {
  StoreOnDisk disk;
  Fill(disk, 1);
  disk.Stop();
  // The newer one ends in the block in which the older one begins. Both would be whole if they did
  // not share it, so only the last block of the newer one's padding shows it. Marks of both.
  const auto write = [&](uint64_t name, uint64_t at, uint64_t generation) {
    const std::vector<std::byte> payload = MakePayload(name, 1, 3 * kBlockBytes);
    const ImageHeader header =
        disk.MakeHeader(name, payload, {{BlockNumber(at), BlockCount(4)}}, generation);
    disk.WriteImage(header, payload);
    const auto page = disk.ReadBlocks(BlockNumber(at), kHeaderBytes);
    IndexRecord record = {.id = disk.Id(name),
                          .shape = header.identity.shape,
                          .incarnation = Incarnation(1),
                          .generation = Generation(generation),
                          .sequence = CommitSequence(generation),
                          .root = HeaderRoot(ConstHeaderPage(page.data(), kHeaderBytes)),
                          .extents = header.placement.extents};
    disk.CommitRecords({.adds = {record}});
  };
  write(60, 6000, 5);
  write(61, 6003, 6);  // over the end of 60, which this damages
  write(62, 6100, 7);
  write(62, 6200, 8);  // the same chunk at two places: the first record is overwritten
  const absl::StatusOr<FsckReport> before = Fsck(disk.fsck_options());
  REQUIRE(before.ok());
  CHECK(CountOf(before->findings, FsckProblem::kOverlap) == 1);
  CHECK(CountOf(before->findings, FsckProblem::kLost) == 1);
  LoseIndex(disk);
  const RebuildReport report = disk.Rebuild();
  INFO(Text(report.findings));
  CHECK(report.marked_images == 5);
  CHECK(report.damaged == 1);
  CHECK(report.dropped == 1);
  CHECK(report.chunks == 3);
  CHECK(disk.Records().count(disk.Id(60)) == 0);
  CHECK(disk.Records().count(disk.Id(61)) == 1);
  CHECK(disk.Record(62).extents[0].first == BlockNumber(6200));
  CHECK(disk.Check().clean());
}

TEST_CASE("of two whole images that share blocks the newer generation wins") {
  StoreOnDisk disk;
  Fill(disk, 1);
  disk.Stop();
  // Equal bytes where they overlap: a payload of zeros, whose end the other one's zeros cover.
  const std::vector<std::byte> zeros(3 * kBlockBytes);
  for (const auto& [name, at, generation] :
       std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>{{71, 6002, 9}, {70, 6000, 4}}) {
    ExtentList extents = {{BlockNumber(at), BlockCount(4)}};
    if (name == 71)
      extents = {{BlockNumber(6100), BlockCount(1)}, {BlockNumber(at), BlockCount(3)}};
    const ImageHeader header = disk.MakeHeader(name, zeros, extents, generation);
    std::vector<std::byte> page(kHeaderBytes);
    EncodeHeader(header, disk.identity.mac_key, HeaderPage(page.data(), kHeaderBytes));
    disk.WriteBlocks(BlockNumber(extents[0].first), page);
    disk.WriteBlocks(BlockNumber(at + (name == 70 ? 1 : 0)), zeros);
    disk.CommitRecords({.adds = {{.id = disk.Id(name),
                                  .shape = header.identity.shape,
                                  .incarnation = Incarnation(1),
                                  .generation = Generation(generation),
                                  .sequence = CommitSequence(generation),
                                  .root = HeaderRoot(ConstHeaderPage(page.data(), kHeaderBytes)),
                                  .extents = extents}}});
  }
  LoseIndex(disk);
  const RebuildReport report = disk.Rebuild();
  INFO(Text(report.findings));
  CHECK(report.damaged == 0);
  CHECK(report.dropped == 1);
  CHECK(disk.Records().count(disk.Id(71)) == 1);
  CHECK(disk.Records().count(disk.Id(70)) == 0);
  CHECK(disk.Check().clean());
}

TEST_CASE("an image that is damaged is left out of a rebuilt index, and said") {
  StoreOnDisk disk;
  Fill(disk, 3);
  disk.Stop();
  disk.FlipInBlock(disk.Record(2).extents[0].first, 70'000);
  disk.FlipInBlock(disk.Record(3).extents[0].first, 2765);
  LoseIndex(disk);
  const RebuildReport report = disk.Rebuild();
  INFO(Text(report.findings));
  CHECK(report.chunks == 1);
  CHECK(report.damaged == 2);
  CHECK(CountOf(report.findings, FsckProblem::kPayload) == 1);
  CHECK(CountOf(report.findings, FsckProblem::kHeader) == 1);
  CHECK(disk.Check().clean());
  REQUIRE(disk.Start());
  CHECK(GetAll(disk, 3) == "h--");
}

TEST_CASE("the old index stays beside the new one, and only the last") {
  StoreOnDisk disk;
  Fill(disk, 2);
  disk.Stop();
  const auto old = disk.Contents();
  const RebuildReport first = disk.Rebuild();  // a healthy index may be made anew as well
  CHECK(first.chunks == 2);
  CHECK(first.old_index == disk.File(kLostIndexName));
  for (const auto& [path, what] : old) {
    if (!absl::StrContains(path, "/index/")) continue;
    const std::string aside = disk.File(kLostIndexName) + path.substr(path.rfind('/'));
    CHECK(disk.Contents()[aside] == what);
  }
  REQUIRE(disk.Start());  // the daemon ignores it
  CHECK(GetAll(disk, 2) == "hh");
  disk.Stop();
  // An interrupted rebuild leaves its beginnings; the next one starts again.
  fs::create_directory(disk.File(kNewIndexName));
  std::ofstream(disk.File(kNewIndexName) + "/CURRENT") << "nonsense";
  std::ofstream(disk.File(kNewLiveMapName)) << "nonsense";
  REQUIRE(disk.Start());
  disk.Stop();
  CHECK(disk.Rebuild().chunks == 2);
  CHECK_FALSE(fs::exists(disk.File(kNewIndexName)));
  CHECK_FALSE(fs::exists(disk.File(kNewLiveMapName)));
  fs::remove_all(disk.File(kIndexName));
  const RebuildReport without = disk.Rebuild();
  CHECK(without.old_index.empty());
  CHECK(without.chunks == 2);
  CHECK(disk.Check().clean());
}

TEST_CASE("without a live map nothing is brought back, and the device is usable again") {
  StoreOnDisk disk;
  Fill(disk, 2);
  disk.Stop();
  fs::remove(disk.File(kLiveMapName));
  CHECK(disk.Check().clean());
  CHECK(CountOf(disk.Check().findings, FsckProblem::kLiveMap, /*notice=*/true) == 1);
  LoseIndex(disk);
  CHECK(disk.Rebuild().chunks == 0);
  REQUIRE(disk.Start());
  CHECK(GetAll(disk, 2) == "--");
  disk.Put(3, 1000);
  disk.Stop();
  CHECK(disk.Check().clean());
}

TEST_CASE("a device of before the live map has one after its next start") {
  StoreOnDisk disk;
  Fill(disk, 3);
  disk.Stop();
  fs::remove(disk.File(kLiveMapName));
  REQUIRE(disk.Start());
  disk.Stop();
  LoseIndex(disk);
  CHECK(disk.Rebuild().chunks == 3);
}

}  // namespace kvkeep
