#include "tiers/remote/image_sweep.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <absl/strings/match.h>
#include <absl/strings/str_format.h>

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
  SweptDirectory() { REQUIRE(MarkSharedDirectory(directory_.path(), "tests").ok()); }
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
    DirectoryStore store({.path = directory_.path()}, &threads, RealClock(), RealRandom());
    uint64_t pages = 0;
    const auto counts = SweepImages(store, RealClock(), RealRandom(), options,
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
  ObjectCall Get(GetObject, ObjectSink*, Done done) override {
    std::move(done)({.outcome = ObjectOutcome::kOk, .head = {.modified = UnixSeconds(now)}});
    return {};
  }
  ObjectCall Put(PutObject, Done done) override {
    std::move(done)({.outcome = ObjectOutcome::kOk});
    return {};
  }
  ObjectCall Delete(DeleteObject request, Done done) override {
    if (absl::StartsWith(request.name, "check/")) {
      std::move(done)({.outcome = ObjectOutcome::kOk});
      return {};
    }
    ++deletions;
    std::move(done)({.outcome = ObjectOutcome::kRefused, .error = {.code = "AccessDenied"}});
    return {};
  }
  ObjectCall List(ListObjects list, ListDone done) override {
    ObjectListing listing;
    const std::string shard = list.prefix.substr(2, 3);
    for (size_t i = 0; i < images_ && shard == "aaa"; ++i) {
      const std::string name = absl::StrFormat("1/aaa/aaa%037x", i);
      listing.objects.push_back({name, 1, UnixSeconds(modified)});
    }
    if (shard == "aaa" && goes_round) listing.next_token = "again";
    const auto outcome = refuses_lists ? ObjectOutcome::kMisconfigured : ObjectOutcome::kOk;
    std::move(done)({.outcome = outcome, .error = {.code = "NoSuchBucket"}}, std::move(listing));
    return {};
  }
  void Cancel(ObjectCall) override {}
  ObjectStoreHealth health() const override { return {}; }

  uint64_t deletions = 0;
  bool refuses_lists = false, goes_round = false;
  int64_t now = 1'800'000'000, modified = 1;

 private:
  const size_t images_;
};

}  // namespace

TEST_CASE("a sweep deletes images older than their lifetime, and nothing else") {
  SweptDirectory directory;
  const std::string old = directory.AddImage('a', std::chrono::hours(25));
  const std::string older = directory.AddImage('b', std::chrono::hours(1000));
  const std::string young = directory.AddImage('c', std::chrono::hours(23));
  // Old, but no name of an image: another shard, too short, capital digits, another program's.
  const std::vector<std::string> others = {"1/abc/" + std::string(40, 'd'),
                                           "1/eee/" + std::string(39, 'e'),
                                           "1/eee/" + std::string(40, 'E'), "1/eee/report.txt"};
  for (const std::string& name : others) directory.Add(name, std::chrono::hours(1000), 10);
  // Not listed.
  const std::string elsewhere = "2/fff/" + std::string(40, 'f');
  directory.Add(elsewhere, std::chrono::hours(1000), 10);
  directory.Add("1/report.txt", std::chrono::hours(1000), 10);

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
  CHECK(directory.Has(elsewhere));
  CHECK(directory.Has("1/report.txt"));

  const ImageSweepCounts again = directory.Sweep({.lifetime = kLifetime});
  CHECK(again.deleted == 0);
  CHECK(again.kept == 1);
}

TEST_CASE("a sweep goes through all pages of all shards, at its rate") {
  SweptDirectory directory;
  constexpr size_t kImages = 2500, kPages = 3 + 4095;  // of 1,000 a page
  for (size_t i = 0; i < kImages; ++i) {
    directory.Add(absl::StrFormat("1/fff/fff%037x", i), std::chrono::hours(30), 1);
  }
  const auto began = std::chrono::steady_clock::now();
  const ImageSweepCounts counts =
      directory.Sweep({.lifetime = kLifetime, .deletions_per_second = 5000});
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK(counts.deleted == kImages);
  CHECK(counts.pages == kPages);
  CHECK(took >= std::chrono::milliseconds(450));  // the first at once
}

TEST_CASE("a sweep gives up where nothing can be deleted or listed") {
  KeepsAll store(500);
  const auto nothing = [](const ImageSweepCounts&) {};
  const auto refused = SweepImages(store, RealClock(), RealRandom(),
                                   {.lifetime = kLifetime, .deletions_per_second = 10'000},
                                   nothing);
  CHECK(refused.status().code() == absl::StatusCode::kUnavailable);
  CHECK(refused.status().message().find("AccessDenied") != std::string::npos);
  CHECK(store.deletions == 20);
  store.refuses_lists = true;
  const auto unlisted =
      SweepImages(store, RealClock(), RealRandom(), {.lifetime = kLifetime}, nothing);
  CHECK_FALSE(unlisted.ok());
  CHECK(unlisted.status().message().find("NoSuchBucket") != std::string::npos);
}

TEST_CASE("the store's clock says how old an image is, and one without a time stays") {
  KeepsAll store(5);
  const auto nothing = [](const ImageSweepCounts&) {};
  const ImageSweepOptions options{.lifetime = kLifetime, .dry_run = true};
  const int64_t day = 24 * 3600;
  for (const int64_t now : {int64_t{5'000'000}, int64_t{4'000'000'000}}) {
    store.now = now;
    for (const auto& [modified, goes] : {std::pair(now - day - 1, true), {now - day, false},
                                         {now + day, false}, {int64_t{0}, false}}) {
      store.modified = modified;
      const auto counts = SweepImages(store, RealClock(), RealRandom(), options, nothing);
      REQUIRE(counts.ok());
      CHECK(counts->deleted == (goes ? 5 : 0));
      CHECK(counts->kept == (goes ? 0 : 5));
    }
  }
  store.now = 0;
  CHECK(absl::IsUnavailable(
      SweepImages(store, RealClock(), RealRandom(), options, nothing).status()));
}

TEST_CASE("a list that goes round ends a sweep") {
  KeepsAll store(5);
  store.goes_round = true;
  const auto swept = SweepImages(store, RealClock(), RealRandom(),
                                 {.lifetime = kLifetime, .dry_run = true},
                                 [](const ImageSweepCounts&) {});
  CHECK(absl::IsDataLoss(swept.status()));
}

TEST_CASE("a sweep's options are checked") {
  KeepsAll store(0);
  for (const ImageSweepOptions& bad :
       {ImageSweepOptions{.lifetime = std::chrono::seconds(3599)},
        ImageSweepOptions{.lifetime = kLifetime, .deletions_per_second = 0},
        ImageSweepOptions{.lifetime = kLifetime, .deletions_per_second = 10'001},
        ImageSweepOptions{.lifetime = kLifetime, .at_once = 0}}) {
    const auto swept = SweepImages(store, RealClock(), RealRandom(), bad,
                                   [](const ImageSweepCounts&) {});
    CHECK(absl::IsInvalidArgument(swept.status()));
  }
}

TEST_CASE("the name of an image is known as one, whatever its fleet and epoch") {
  for (const uint64_t epoch : {0, 7}) {
    std::array<std::byte, Secret::kBytes> bytes{};
    bytes[0] = std::byte{static_cast<uint8_t>(epoch + 1)};
    CHECK(IsNameOfObject(NameOfObject(Secret(bytes), {.configured = epoch}, ChunkId{})));
  }
  for (const char* no : {"", "1/", "1/abc", "1/abc/", "2/aaa/aaaa"}) {
    CHECK_FALSE(IsNameOfObject(no));
  }
}

}  // namespace kvkeep
