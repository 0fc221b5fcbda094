// A device that is broken at the start costs its own chunks and nothing else.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/e2e/engine.h"
#include "tests/e2e/read_only.h"
#include "tests/fakes/free_port.h"

namespace kvkeep::e2e {
namespace {

using client::PutStatus;
namespace fs = std::filesystem;

constexpr size_t kChunks = 40;

// A daemon with two devices that hold about half of the chunks each; killed at the end.
class TwoDevices {
 public:
  TwoDevices() : site({.devices = {{.name = "nvme0"}, {.name = "nvme1"}}}) {
    site.Start();
    Engine engine(site);
    // Puts one after the other, as what is queued on a device counts when the next chunk is placed.
    for (const TestChunk& chunk : chunks) {
      REQUIRE(engine.PutAll({chunk}));
      REQUIRE(site.AwaitClean());
    }
    const v1::StatusResponse status = site.Status();
    REQUIRE(status.devices_size() == 2);
    on_second = status.devices(1).chunks();
    REQUIRE(on_second > 0);
    REQUIRE(on_second < kChunks);
    // Waits a while, so that records are marked sure.
    REQUIRE(Eventually([this] { return site.Counter("syncs") > 0; }));
    site.Kill();
  }

  // The first device is broken now. Starts the daemon. Checks that the second device serves its
  // chunks and takes new ones, and that the first one reports `why`.
  void CheckServesTheRest(const std::string& why) {
    site.Start();
    const v1::StatusResponse status = site.Status();
    const v1::DeviceStatus* first = nullptr;
    for (const v1::DeviceStatus& device : status.devices()) {
      if (device.path() == site.path("nvme0")) first = &device;
      if (device.path() == site.path("nvme1")) CHECK(device.state() == "ok");
    }
    REQUIRE(first != nullptr);
    CHECK(first->state() == "offline");
    INFO(first->message());
    CHECK(absl::StrContains(first->message(), site.path("nvme0")));
    CHECK(absl::StrContains(first->message(), why));
    CHECK(site.AwaitLog("device is offline"));

    Engine engine(site);
    // The awaited sync may be the other device's; each header is then read first, soon.
    CHECK(Eventually([&] { return engine.Find(chunks).any == on_second; }));
    CHECK(engine.Hits(chunks) == on_second);
    CHECK(engine.wrong_bytes == 0);
    CHECK(engine.PutAll(chunks));  // lost chunks are put again, on the other device
    REQUIRE(site.AwaitKept());
    CHECK(engine.Find(chunks).g3 == kChunks);
    CHECK(engine.Hits(chunks) == kChunks);
    site.Kill();
  }

  // The same with `required: true`: the start is refused, in one line.
  void CheckRequiredRefuses(const std::string& why) {
    site.settings.devices[0].required = true;
    const Ending end = site.StartAndAwaitEnd();
    INFO(end.err);
    CHECK(end.exit_status == 1);
    CHECK(std::count(end.err.begin(), end.err.end(), '\n') == 1);
    CHECK(absl::StrContains(end.err, site.path("nvme0")));
    CHECK(absl::StrContains(end.err, why));
    CHECK(absl::StrContains(end.err, "required"));
  }

  Site site;
  const std::vector<TestChunk> chunks = Chunks(1, kChunks, 400'000);
  size_t on_second = 0;
};

TEST_CASE("a known device that is gone") {
  TwoDevices two;
  fs::rename(two.site.path("nvme0"), two.site.path("elsewhere"));
  two.CheckRequiredRefuses("No such file or directory");
  two.site.settings.devices[0].required = false;
  two.CheckServesTheRest("No such file or directory");
  // The device is back: what it holds is there again.
  fs::remove_all(two.site.path("nvme0"));
  fs::rename(two.site.path("elsewhere"), two.site.path("nvme0"));
  two.site.Start();
  Engine engine(two.site);
  CHECK(engine.Hits(two.chunks) == kChunks);
  CHECK(two.site.Status().devices(0).chunks() + two.site.Status().devices(1).chunks() >= kChunks);
}

TEST_CASE("a known device whose file system is not mounted: its directory is empty") {
  TwoDevices two;
  fs::rename(two.site.path("nvme0"), two.site.path("elsewhere"));
  fs::create_directory(two.site.path("nvme0"));
  two.CheckRequiredRefuses("missing");
  two.site.settings.devices[0].required = false;
  two.CheckServesTheRest("missing");
  CHECK(fs::is_empty(two.site.path("nvme0")));  // nothing was formatted
  // The operator declares it a new one.
  WriteFile(two.site.path("state/devices"), two.site.path("nvme1") + "\n");
  two.site.Start();
  CHECK(two.site.Status().devices(0).state() == "ok");
}

TEST_CASE("a known device that is read-only") {
  TwoDevices two;
  if (!ReadOnlyMountsWork(two.site.path("nvme0"))) {
    WARN("skipped: this user may not mount");
    return;
  }
  const auto read_only = [dir = two.site.path("nvme0")] { MountReadOnly(dir.c_str()); };
  two.site.before_exec = read_only;
  two.CheckRequiredRefuses("Read-only file system");
  two.site.settings.devices[0].required = false;
  two.site.before_exec = read_only;
  two.CheckServesTheRest("Read-only file system");
}

TEST_CASE("a known device with a damaged superblock") {
  TwoDevices two;
  std::string block = ReadFile(two.site.path("nvme0/superblock"));
  block[100] = static_cast<char>(block[100] ^ 1);
  WriteFile(two.site.path("nvme0/superblock"), block);
  two.CheckRequiredRefuses("damaged");
  two.site.settings.devices[0].required = false;
  two.CheckServesTheRest("damaged");
  CHECK(ReadFile(two.site.path("nvme0/superblock")) == block);  // left for inspection
}

TEST_CASE("a known device with a damaged index") {
  TwoDevices two;
  for (const fs::directory_entry& file : fs::directory_iterator(two.site.path("nvme0/index"))) {
    const std::string name = file.path().filename().string();
    if (!absl::StartsWith(name, "MANIFEST") && !absl::EndsWith(name, ".sst")) continue;
    WriteFile(file.path().string(), std::string(fs::file_size(file.path()), 'x'));
  }
  two.CheckRequiredRefuses("index");
  two.site.settings.devices[0].required = false;
  two.CheckServesTheRest("index");
}

TEST_CASE("a known device with a data file that is too short") {
  TwoDevices two;
  fs::resize_file(two.site.path("nvme0/data.000"), 1 << 20);
  two.CheckRequiredRefuses("data.000");
  two.site.settings.devices[0].required = false;
  two.CheckServesTheRest("data.000");
}

TEST_CASE("damage in the middle of an index's log is said, and what was logged before is served") {
  const int port = FreePort();
  Site site({.metrics = absl::StrCat("127.0.0.1:", port)});
  site.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 200, 20'000);
  {
    Engine engine(site);
    for (const TestChunk& chunk : chunks) REQUIRE(engine.PutAll({chunk}, {.durable = true}));
  }
  site.Kill();
  const auto damages = [&] {
    const std::string metrics = HttpGet(port, "/metrics");
    const std::string name = "\nkvkeep_rocksdb_log_damages_total{";
    const size_t at = metrics.find(name);
    REQUIRE(at != std::string::npos);
    return std::stoi(metrics.substr(metrics.find("} ", at) + 2));
  };
  std::string log;
  for (const fs::directory_entry& file : fs::directory_iterator(site.path("nvme0/index"))) {
    if (file.path().extension() != ".log" || file.file_size() == 0) continue;
    CHECK(log.empty());
    log = file.path().string();
  }
  std::string bytes = ReadFile(log);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  WriteFile(log, bytes);

  constexpr char kSaid[] = "log of a device's index is damaged";
  site.Start();
  CHECK(site.AwaitLog(kSaid));
  CHECK(damages() > 0);
  const v1::StatusResponse status = site.Status();
  CHECK(status.devices(0).state() == "ok");
  CHECK(absl::StrContains(status.devices(0).message(), "log was damaged"));
  Engine engine(site);
  size_t there = 0;
  CHECK(Eventually([&] { return (there = engine.Hits(chunks)) > kChunks; }));
  CHECK(there < chunks.size());
  CHECK(engine.wrong_bytes == 0);
  REQUIRE(engine.PutAll(chunks, {.durable = true}));
  CHECK(engine.Hits(chunks) == chunks.size());

  // The chunks are sound now, also after a kill.
  site.Kill();
  site.Start();
  CHECK_FALSE(absl::StrContains(site.Log(), kSaid));
  CHECK(damages() == 0);
  CHECK(site.Status().devices(0).message().empty());
  Engine again(site);
  CHECK(again.Hits(chunks) == chunks.size());
}

}  // namespace
}  // namespace kvkeep::e2e
