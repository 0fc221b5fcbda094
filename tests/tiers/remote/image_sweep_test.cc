#include "tiers/remote/image_sweep.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <catch2/catch.hpp>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/fakes/scratch_dir.h"
#include "tiers/base/executor.h"
#include "tiers/base/random.h"
#include "tiers/objects/directory_store.h"
#include "tiers/remote/object_name.h"

namespace kvkeep {
namespace {

constexpr std::chrono::hours kLifetime{24};

// A shared directory with images and other files of some age.
class SweptDirectory {
 public:
  std::string AddImage(char digit, std::chrono::hours age, size_t bytes = 100) {
    const std::string digits(40, digit);
    const std::string name = "1/" + digits.substr(0, 3) + "/" + digits;
    Add(name, age, bytes);
    return name;
  }
  void Add(const std::string& name, std::chrono::hours age, size_t bytes) {
    const std::filesystem::path path = directory_.path() + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << std::string(bytes, 'x');
    timespec times[2] = {};
    times[0].tv_sec = times[1].tv_sec = time(nullptr) - age.count() * 3600;
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  }
  bool Has(const std::string& name) const {
    return std::filesystem::exists(directory_.path() + "/" + name);
  }
  ImageSweepCounts Sweep(const ImageSweepOptions& options) {
    ThreadPool threads("sweep", 4);
    const auto store = DirectoryStore::Make({.path = directory_.path()}, &threads, RealClock(),
                                            RealRandom());
    REQUIRE(store.ok());
    uint64_t pages = 0;
    const auto counts = SweepImages(**store, RealClock(), options,
                                    [&](const ImageSweepCounts&) { ++pages; });
    REQUIRE(counts.ok());
    CHECK(counts->pages == pages);
    return *counts;
  }

 private:
  const ScratchDir directory_;
};

// A store that can be listed and takes no deletions.
class KeepsAll final : public ObjectStore {
 public:
  explicit KeepsAll(size_t images) : images_(images) {}
  ObjectCall Get(GetObject, ObjectSink*, Done) override { return {}; }
  ObjectCall Put(PutObject, Done) override { return {}; }
  ObjectCall Delete(DeleteObject, Done done) override {
    ++deletions;
    std::move(done)({.outcome = ObjectOutcome::kRefused, .error = {.code = "AccessDenied"}});
    return {};
  }
  ObjectCall List(ListObjects, ListDone done) override {
    ObjectListing listing;
    for (size_t i = 0; i < images_; ++i) {
      listing.objects.push_back({"1/aaa/" + std::string(40, 'a'), 1, UnixSeconds(1)});
    }
    const auto outcome = refuses_lists ? ObjectOutcome::kMisconfigured : ObjectOutcome::kOk;
    std::move(done)({.outcome = outcome, .error = {.code = "NoSuchBucket"}}, std::move(listing));
    return {};
  }
  void Cancel(ObjectCall) override {}
  ObjectStoreHealth health() const override { return {}; }

  uint64_t deletions = 0;
  bool refuses_lists = false;

 private:
  const size_t images_;
};

}  // namespace

TEST_CASE("a sweep deletes images older than their lifetime, and nothing else") {
  SweptDirectory directory;
  const std::string old = directory.AddImage('a', std::chrono::hours(25));
  const std::string older = directory.AddImage('b', std::chrono::hours(1000));
  const std::string young = directory.AddImage('c', std::chrono::hours(23));
  // Old, but no name of an image: another shard, too short, capital digits, somebody else's.
  const std::vector<std::string> others = {
      "1/abc/" + std::string(40, 'd'), "1/eee/" + std::string(39, 'e'),
      "1/AAA/" + std::string(40, 'A'), "1/report.txt"};
  for (const std::string& name : others) directory.Add(name, std::chrono::hours(1000), 10);
  directory.Add("2/fff/" + std::string(40, 'f'), std::chrono::hours(1000), 10);  // not listed

  const ImageSweepCounts dry = directory.Sweep({.lifetime = kLifetime, .dry_run = true});
  CHECK(dry.deleted == 2);
  CHECK(dry.deleted_bytes == 200);
  CHECK(directory.Has(old));
  CHECK(directory.Has(older));

  const ImageSweepCounts counts = directory.Sweep({.lifetime = kLifetime});
  CHECK(counts.deleted == 2);
  CHECK(counts.deleted_bytes == 200);
  CHECK(counts.kept == 1);
  CHECK(counts.kept_bytes == 100);
  CHECK(counts.others == others.size());
  CHECK(counts.failed == 0);
  CHECK_FALSE(directory.Has(old));
  CHECK_FALSE(directory.Has(older));
  CHECK(directory.Has(young));
  for (const std::string& name : others) CHECK(directory.Has(name));
  CHECK(directory.Has("2/fff/" + std::string(40, 'f')));

  const ImageSweepCounts again = directory.Sweep({.lifetime = kLifetime});
  CHECK(again.deleted == 0);
  CHECK(again.kept == 1);
}

TEST_CASE("a sweep goes through all pages, at its rate") {
  SweptDirectory directory;
  constexpr size_t kImages = 2500;  // of 1,000 a page
  for (size_t i = 0; i < kImages; ++i) {
    char digits[41];
    snprintf(digits, sizeof(digits), "%03zx%037zx", i % 4096, i);
    directory.Add("1/" + std::string(digits, 3) + "/" + digits, std::chrono::hours(30), 1);
  }
  const auto began = std::chrono::steady_clock::now();
  const ImageSweepCounts counts =
      directory.Sweep({.lifetime = kLifetime, .deletions_per_second = 5000});
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK(counts.deleted == kImages);
  CHECK(counts.pages >= 3);
  CHECK(took >= std::chrono::milliseconds(450));  // the first at once
}

TEST_CASE("a sweep gives up where nothing can be deleted or listed") {
  KeepsAll store(500);
  const auto nothing = [](const ImageSweepCounts&) {};
  const auto refused = SweepImages(store, RealClock(),
                                   {.lifetime = kLifetime, .deletions_per_second = 10'000},
                                   nothing);
  CHECK(refused.status().code() == absl::StatusCode::kUnavailable);
  CHECK(refused.status().message().find("AccessDenied") != std::string::npos);
  CHECK(store.deletions == 20);
  store.refuses_lists = true;
  const auto unlisted = SweepImages(store, RealClock(), {.lifetime = kLifetime}, nothing);
  CHECK_FALSE(unlisted.ok());
  CHECK(unlisted.status().message().find("NoSuchBucket") != std::string::npos);
}

TEST_CASE("a sweep's options are checked") {
  KeepsAll store(0);
  for (const ImageSweepOptions& bad :
       {ImageSweepOptions{.lifetime = std::chrono::seconds(3599)},
        ImageSweepOptions{.lifetime = kLifetime, .deletions_per_second = 0},
        ImageSweepOptions{.lifetime = kLifetime, .deletions_per_second = 10'001},
        ImageSweepOptions{.lifetime = kLifetime, .at_once = 0}}) {
    CHECK(absl::IsInvalidArgument(
        SweepImages(store, RealClock(), bad, [](const ImageSweepCounts&) {}).status()));
  }
}

TEST_CASE("the name of an image is known as one, whatever its fleet and epoch") {
  for (const uint64_t epoch : {0, 7}) {
    std::array<std::byte, Secret::kBytes> bytes{};
    bytes[0] = std::byte{static_cast<uint8_t>(epoch + 1)};
    CHECK(IsNameOfObject(NameOfObject(Secret(bytes), epoch, ChunkId{})));
  }
  for (const char* no : {"", "1/", "1/abc", "1/abc/", "2/aaa/aaaa"}) {
    CHECK_FALSE(IsNameOfObject(no));
  }
}

}  // namespace kvkeep
