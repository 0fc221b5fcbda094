#include "server/storage/device_place.h"

#include <absl/strings/match.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/fakes/memory_arena.h"
#include "tests/fakes/posix_io_engine.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/server/soon.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr std::chrono::seconds kLong{60};

MonotonicTime In(std::chrono::nanoseconds time) { return RealClock()->Now() + time; }

// A store without a device, and a directory that may hold one.
struct Site {
  ScratchDir scratch;
  Log log{LogFormat::kLogfmt, spdlog::level::off};
  ThreadPool io{"io", 1}, copy{"copy", 1};
  PosixIoEngine engine{&io};
  MemoryArena arena{BlockCount(64), BlockCount(64)};
  std::set<std::string> known;  // touched by the place's thread alone, once it runs
  NvmeDeviceOptions options{
      .dir = scratch / "device", .capacity_bytes = 64 * kMiB, .file_bytes = 64 * kMiB};
  std::unique_ptr<DevicePlace> place;
  std::unique_ptr<Store> store;
  std::atomic<bool> ends{false};
  std::thread ticker;

  Site() {
    StoreDeps deps{.clock = RealClock(),
                   .random = RealRandom(),
                   .arena = &arena,
                   .copy_executor = &copy};
    deps.devices.resize(1);
    store = Store::Create({.max_chunks = 1000}, deps).value();
    ticker = std::thread([this] {
      while (!ends) {
        store->Tick();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // between its turns
      }
    });
  }
  ~Site() {
    REQUIRE(place->Stop(In(kLong)));
    ends = true;
    ticker.join();
    for (int hops = 0; hops < 4; ++hops) place->PassThrough();
    store.reset();
  }
  void Begin() {
    const DevicePlace::Home home{
        .knows = [this](const std::string& dir) { return known.contains(dir); },
        .note =
            [this](const std::string& dir) {
              known.insert(dir);
              return absl::OkStatus();
            },
        .known_file = "FILE"};
    place = std::make_unique<DevicePlace>(options, home, &engine, &log);
  }
  DeviceSnapshot Seen() {
    DeviceSnapshot seen = store->snapshot().devices[0];
    place->AddTo(&seen);
    return seen;
  }
  // The device joins, and a sync of it fails.
  void FailSync() {
    place->JoinTo(store.get(), 0);
    REQUIRE(Becomes(DeviceState::kOk));
    engine.FailSyncs(true);
    store->SyncAll([](const absl::Status&) {});
    REQUIRE(Becomes(DeviceState::kReadOnly));
    engine.FailSyncs(false);
  }
  bool Becomes(DeviceState state) {
    return Soon([&] { return Seen().state == state; }, kLong);
  }
};

// Holds the lock of a file.
class Locker {
 public:
  explicit Locker(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    REQUIRE(fd_ >= 0);
    REQUIRE(flock(fd_, LOCK_EX | LOCK_NB) == 0);
  }
  ~Locker() { close(fd_); }

 private:
  const int fd_;
};

}  // namespace

TEST_CASE("a device is locked, opened, and here once there is a store") {
  Site site;
  site.Begin();
  CHECK(site.place->AwaitLocks(In(kLong)));
  site.place->AwaitOpened(In(kLong));
  CHECK_FALSE(site.place->error().has_value());
  CHECK(site.Seen().state == DeviceState::kJoining);
  site.place->JoinTo(site.store.get(), 0);
  site.place->AwaitHere(In(kLong));
  CHECK(site.Seen().state == DeviceState::kOk);
  CHECK(site.Seen().path == site.options.dir);
  CHECK(site.known.contains(site.options.dir));
}

TEST_CASE("a device that somebody else has joins when that one lets go") {
  Site site;
  {  // it is made
    Site before;
    before.options.dir = site.options.dir;
    before.Begin();
    before.place->AwaitOpened(In(kLong));
  }
  auto locker = std::make_unique<Locker>(site.options.dir + "/data.000");
  site.Begin();
  site.place->JoinTo(site.store.get(), 0);
  CHECK_FALSE(site.place->AwaitLocks(In(kLong)));
  REQUIRE(site.place->error().has_value());
  CHECK(site.place->error()->failure == OpenFailure::kInUse);
  CHECK(site.Seen().state == DeviceState::kOffline);
  CHECK(absl::StrContains(site.Seen().message, "data.000"));
  locker.reset();
  CHECK(site.Becomes(DeviceState::kOk));
  CHECK_FALSE(site.place->error().has_value());
}

TEST_CASE("a known device that is not mounted is not made anew, and joins when it is") {
  Site site;
  {
    Site before;
    before.options.dir = site.options.dir;
    before.Begin();
    before.place->AwaitOpened(In(kLong));
  }
  const std::string elsewhere = site.scratch / "elsewhere";
  std::filesystem::rename(site.options.dir, elsewhere);
  site.known.insert(site.options.dir);
  site.Begin();
  site.place->JoinTo(site.store.get(), 0);
  CHECK_FALSE(site.place->AwaitLocks(In(kLong)));
  CHECK(absl::StrContains(site.Seen().message, "mount it"));
  CHECK(absl::StrContains(site.Seen().message, "FILE"));
  CHECK_FALSE(std::filesystem::exists(site.options.dir));
  std::filesystem::rename(elsewhere, site.options.dir);
  CHECK(site.Becomes(DeviceState::kOk));
}

TEST_CASE("a device whose sync failed is opened anew once its file system takes writes") {
  Site site;
  site.Begin();
  site.FailSync();
  const std::string probe = site.options.dir + "/probe";
  std::filesystem::create_symlink("/dev/full", probe);
  std::this_thread::sleep_for(std::chrono::seconds(7));  // longer than a failure lasts
  CHECK(site.Seen().state == DeviceState::kReadOnly);    // its contents can be read
  std::filesystem::remove(probe);
  CHECK(site.Becomes(DeviceState::kOk));
  std::atomic<int> synced{0};  // 1: OK
  site.store->SyncAll([&synced](const absl::Status& status) { synced = status.ok() ? 1 : 2; });
  CHECK(Soon([&] { return synced != 0; }, kLong));
  CHECK(synced == 1);
}

TEST_CASE("a device that failed and was unmounted joins when it is mounted again") {
  Site site;
  site.Begin();
  site.FailSync();
  const std::string elsewhere = site.scratch / "elsewhere";
  std::filesystem::rename(site.options.dir, elsewhere);
  CHECK(Soon([&] { return absl::StrContains(site.Seen().message, "mount it"); }, kLong));
  CHECK(site.Seen().state == DeviceState::kOffline);
  Locker(elsewhere + "/data.000");  // no other process has it any more
  std::filesystem::rename(elsewhere, site.options.dir);
  CHECK(site.Becomes(DeviceState::kOk));
}

TEST_CASE("a device whose files are removed while it is here says so, and what to do") {
  Site site;
  site.Begin();
  site.place->JoinTo(site.store.get(), 0);
  REQUIRE(site.Becomes(DeviceState::kOk));
  const std::string superblock = site.options.dir + "/superblock", kept = site.scratch / "kept";
  std::filesystem::rename(superblock, kept);
  SECTION("removed") {}
  SECTION("another one is in its place") { std::filesystem::copy_file(kept, superblock); }
  CHECK(site.Becomes(DeviceState::kDegraded));
  const std::string message = site.Seen().message;
  for (const char* part : {"superblock: was removed or replaced", "stop the daemon",
                           "remove its line from FILE"}) {
    CHECK(absl::StrContains(message, part));
  }
  std::filesystem::rename(kept, superblock);
  CHECK(site.Becomes(DeviceState::kOk));
  CHECK(site.Seen().message.empty());
}

TEST_CASE("whoever waits for a device waits no longer than said") {
  Site site;
  site.options.capacity_bytes = 1;  // no device can be made
  site.Begin();
  site.place->AwaitHere(In(kLong));
  REQUIRE(site.place->error().has_value());
  CHECK(site.place->error()->failure == OpenFailure::kMisconfigured);
  CHECK_FALSE(site.place->AwaitLocks(In(std::chrono::nanoseconds(0))));
}

}  // namespace kvkeep
