#include "tiers/nvme/live_map.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "tests/fakes/memory_index.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/index/records.h"
#include "tiers/nvme/live_index.h"

namespace kvkeep {
namespace {

constexpr BlockCount kBlocks(3 * kLiveBlocksPerPage + 100);
const Uuid kDevice = *Uuid::FromBytes("device");

LiveMap OpenMap(const std::string& path, const Uuid& device = kDevice) {
  absl::StatusOr<LiveMap> map = LiveMap::Open(path, device, kBlocks);
  REQUIRE(map.ok());
  return *std::move(map);
}

LiveMapContents ReadBack(const std::string& path, const Uuid& device = kDevice) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY));
  absl::StatusOr<LiveMapContents> contents = ReadLiveMap(fd.get(), path, device, kBlocks);
  REQUIRE(contents.ok());
  return *std::move(contents);
}

std::set<uint64_t> Images(const std::string& path, bool whole = true) {
  const LiveMapContents contents = ReadBack(path);
  if (whole) CHECK(contents.damaged_pages.empty());
  std::set<uint64_t> images;
  for (auto at = contents.images.Next(BlockNumber(0)); at.has_value();
       at = contents.images.Next(BlockNumber(at->value() + 1))) {
    images.insert(at->value());
  }
  return images;
}

std::vector<BlockNumber> Blocks(const std::vector<uint64_t>& numbers) {
  std::vector<BlockNumber> blocks;
  for (const uint64_t number : numbers) blocks.emplace_back(number);
  return blocks;
}

// An index that records the map's state when a batch came, and fails on request.
class SpyIndex final : public ChunkIndex {
 public:
  explicit SpyIndex(std::string path) : path_(std::move(path)) {}
  absl::Status Commit(const IndexBatch& batch) override {
    images_at_commit = Images(path_, /*whole=*/false);
    ++commits;
    return failure.ok() ? memory.Commit(batch) : failure;
  }
  absl::Status Sync(const StableMark& mark) override { return memory.Sync(mark); }
  absl::StatusOr<StableMark> ReadStableMark() override { return memory.ReadStableMark(); }
  absl::StatusOr<ScanResult> Scan(absl::FunctionRef<bool(const IndexRecord&)> visit) override {
    return memory.Scan(visit);
  }
  absl::Status SaveRecency(std::span<const RecencyDelta> deltas) override {
    return memory.SaveRecency(deltas);
  }
  absl::Status ScanRecency(absl::FunctionRef<bool(const RecencyDelta&)> visit) override {
    return memory.ScanRecency(visit);
  }
  absl::Status PutMeta(absl::string_view, absl::string_view) override { return absl::OkStatus(); }
  absl::Status EraseMeta(absl::string_view) override { return absl::OkStatus(); }
  absl::StatusOr<std::optional<std::string>> GetMeta(absl::string_view) override {
    return std::nullopt;
  }
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ListMeta(
      absl::string_view) override {
    return std::vector<std::pair<std::string, std::string>>();
  }
  uint64_t disk_bytes() const override { return 0; }

  MemoryIndex memory;
  absl::Status failure;
  int commits = 0;
  std::set<uint64_t> images_at_commit;

 private:
  const std::string path_;
};

struct Live {
  ScratchDir dir;
  const std::string path = dir / "live";
  SpyIndex* spy = nullptr;
  std::unique_ptr<LiveIndex> index = Make();

  std::unique_ptr<LiveIndex> Make() {
    auto made = std::make_unique<SpyIndex>(path);
    spy = made.get();
    return std::make_unique<LiveIndex>(std::move(made), OpenMap(path), kBlocks);
  }
};

}  // namespace

TEST_CASE("a live map says what was set and not cleared, on every page, after opening it again") {
  ScratchDir dir;
  const std::string path = dir / "live";
  const uint64_t page = kLiveBlocksPerPage;
  {
    LiveMap map = OpenMap(path);
    CHECK(Images(path).empty());
    REQUIRE(map.Set(Blocks({3 * page + 99, 1, 8, page - 1, page, 2 * page + 5})).ok());
    REQUIRE(map.Clear(Blocks({8, 2 * page + 5, 2 * page + 6})).ok());
  }
  LiveMap map = OpenMap(path);
  CHECK(Images(path) == std::set<uint64_t>{1, page - 1, page, 3 * page + 99});
  CHECK(std::filesystem::file_size(path) == LiveMapBytes(kBlocks));
  BlockSet other(kBlocks);
  other.Insert(BlockNumber(2 * page));
  REQUIRE(map.Replace(other).ok());
  CHECK(Images(path) == std::set<uint64_t>{2 * page});
  REQUIRE(WriteLiveMap(path, kDevice, BlockSet(kBlocks)).ok());
  CHECK(Images(path).empty());
}

TEST_CASE("a page of a live map that is damaged, another's or missing says nothing, and is named") {
  ScratchDir dir;
  const std::string path = dir / "live";
  LiveMap map = OpenMap(path);
  REQUIRE(map.Set(Blocks({1, kLiveBlocksPerPage + 1})).ok());
  CHECK(ReadBack(path, *Uuid::FromBytes("other")).damaged_pages == std::vector<uint64_t>{0, 1});
  {
    const UniqueFd fd(open(path.c_str(), O_RDWR));
    Block page;
    REQUIRE(ReadAt(fd.get(), 0, page, path).ok());
    REQUIRE(WriteAt(fd.get(), 2 * kBlockBytes, page, path).ok());  // a page at another's place
    page[100] ^= std::byte{1};
    REQUIRE(WriteAt(fd.get(), 0, page, path).ok());
  }
  CHECK(ReadBack(path).damaged_pages == std::vector<uint64_t>{0, 2});
  CHECK(ReadBack(path).images.Count() == 1);
  // In use it is written anew.
  REQUIRE(map.Set(Blocks({7, 2 * kLiveBlocksPerPage})).ok());
  CHECK(Images(path) == std::set<uint64_t>{7, kLiveBlocksPerPage + 1, 2 * kLiveBlocksPerPage});
  std::filesystem::resize_file(path, kBlockBytes);
  CHECK(ReadBack(path).damaged_pages == std::vector<uint64_t>{1, 2, 3});
}

TEST_CASE("an image is marked after its record is committed, and unmarked before it is removed") {
  Live live;
  const IndexRecord first = NumberedRecord(10), second = NumberedRecord(20);
  REQUIRE(live.index->Commit({.adds = {first}}).ok());
  CHECK(live.spy->images_at_commit.empty());
  CHECK(Images(live.path) == std::set<uint64_t>{20});
  REQUIRE(
      live.index->Commit({.adds = {second}, .removes = {first.id}, .freed = Blocks({20})}).ok());
  CHECK(live.spy->images_at_commit.empty());
  CHECK(Images(live.path) == std::set<uint64_t>{40});
  // Space may come free without a record to remove, as it was overwritten.
  REQUIRE(live.index->Commit({.freed = Blocks({40})}).ok());
  CHECK(Images(live.path).empty());
}

TEST_CASE("a batch that fails marks nothing") {
  Live live;
  REQUIRE(live.index->Commit({.adds = {NumberedRecord(10)}}).ok());
  live.spy->failure = absl::UnavailableError("stalled");
  CHECK_FALSE(live.index->Commit({.adds = {NumberedRecord(11)}}).ok());
  CHECK(Images(live.path) == std::set<uint64_t>{20});
}

TEST_CASE("after the first scan the map says what the records say; later ones leave it alone") {
  Live live;
  const auto all = [](const IndexRecord&) { return true; };
  REQUIRE(live.spy->memory.Commit({.adds = {NumberedRecord(5), NumberedRecord(6)}}).ok());
  {
    LiveMap map = OpenMap(live.path);
    REQUIRE(map.Set(Blocks({77, 12})).ok());  // of images that the index no longer names
  }
  REQUIRE(live.index->Scan(all)->records == 2);
  CHECK(Images(live.path) == std::set<uint64_t>{10, 12});
  REQUIRE(live.index->Commit({.freed = Blocks({12})}).ok());
  REQUIRE(live.index->Scan(all).ok());
  CHECK(Images(live.path) == std::set<uint64_t>{10});
}

TEST_CASE("a map that cannot be written fails the next batch before the index hears of it") {
  Live live;
  REQUIRE(live.index->Commit({.adds = {NumberedRecord(5)}}).ok());
  // Read errors past its end stand for a drive that fails.
  std::filesystem::resize_file(live.path, 0);
  CHECK(live.index->Commit({.adds = {NumberedRecord(6)}}).ok());  // applied: noticed too late
  CHECK(live.spy->commits == 2);
  CHECK_FALSE(live.index->Commit({.adds = {NumberedRecord(7)}}).ok());
  CHECK(live.spy->commits == 2);
  std::filesystem::resize_file(live.path, LiveMapBytes(kBlocks));
  CHECK(live.index->Commit({.adds = {NumberedRecord(7)}}).ok());
  CHECK(Images(live.path) == std::set<uint64_t>{12, 14});  // the late one is there too
}

TEST_CASE("a map that could not be put right after the first scan fails batches until it could") {
  Live live;
  REQUIRE(live.spy->memory.Commit({.adds = {NumberedRecord(5)}}).ok());
  std::filesystem::resize_file(live.path, 0);  // read errors, as above
  REQUIRE(live.index->Scan([](const IndexRecord&) { return true; })->records == 1);
  CHECK_FALSE(live.index->Commit({.adds = {NumberedRecord(6)}}).ok());
  CHECK(live.spy->commits == 0);
  std::filesystem::resize_file(live.path, LiveMapBytes(kBlocks));
  CHECK(live.index->Commit({.adds = {NumberedRecord(6)}}).ok());
  CHECK(Images(live.path) == std::set<uint64_t>{10, 12});
}

TEST_CASE("a map that is no file is refused") {
  const ScratchDir scratch;
  REQUIRE(mkfifo((scratch / "map").c_str(), 0600) == 0);
  const absl::Status opened = LiveMap::Open(scratch / "map", kDevice, kBlocks).status();
  INFO(opened.ToString());
  CHECK(absl::IsFailedPrecondition(opened));
}

}  // namespace kvkeep
