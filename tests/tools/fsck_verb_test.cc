// kvkeep fsck: its output and exit codes, on a device that was just formatted.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/posix_io_engine.h"
#include "tests/fakes/seeded_random.h"
#include "tests/tools/cli_run.h"
#include "tiers/nvme/nvme_device.h"

namespace kvkeep::tools {
namespace {

struct Device {
  TemporaryDirectory scratch;
  const std::string identity = scratch.path("identity");
  const NvmeDeviceOptions options{.dir = scratch.path("nvme0"), .capacity_bytes = 64 * kMiB};
  ManualExecutor executor;
  PosixIoEngine engine{&executor};
  SeededRandom random{1};

  Device() { REQUIRE(Open() != nullptr); }
  std::unique_ptr<NvmeDevice> Open() {
    const StoreIdentity store = LoadOrCreateStoreIdentity(identity, &random).value();
    return OpenNvmeDevice(options, store.store_uuid, store.mac_key, &engine, &random).device;
  }
  CliResult Fsck(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"fsck", options.dir});
    if (std::find(more.begin(), more.end(), "--config") == more.end()) {
      more.insert(more.end(), {"--identity", identity});
    }
    return Run(more);
  }
};

}  // namespace

TEST_CASE("fsck of a clean device says so, to people and to scripts") {
  const Device device;
  const CliResult text = device.Fsck();
  CHECK(text.code == 0);
  CHECK(absl::EndsWith(text.out, device.options.dir + ": clean\n"));
  const CliResult json = device.Fsck({"--json", "--headers-only"});
  CHECK(json.code == 0);
  CHECK(json.json()["clean"] == true);
  CHECK(json.json()["headers_only"] == true);
  CHECK(json.json()["data_bytes"] == 32 * kMiB);
  CHECK(json.json()["findings"].empty());
}

TEST_CASE("fsck finds the state file by the daemon's config") {
  const Device device;
  std::ofstream(device.scratch.path("kvkeep.yaml"))
      << "state: {dir: " << device.scratch.path("") << "}\n";
  CHECK(device.Fsck({"--config", device.scratch.path("kvkeep.yaml")}).code == 0);
  const CliResult none = device.Fsck({"--config", device.scratch.path("no.yaml")});
  CHECK(none.code == 2);
  CHECK(absl::StrContains(none.err, "no.yaml"));
}

TEST_CASE("fsck of a damaged device exits 1 and says what, where and what to do") {
  const Device device;
  std::filesystem::resize_file(device.options.dir + "/index/CURRENT", 2);
  const CliResult text = device.Fsck();
  CHECK(text.code == 1);
  CHECK(absl::StrContains(text.out, "index: index: "));
  CHECK(absl::StrContains(text.out, "--rebuild-index"));
  CHECK(absl::StrContains(text.out, "cannot be checked any further"));
  const CliResult json = device.Fsck({"--json"});
  CHECK(json.code == 1);
  CHECK(json.json()["complete"] == false);
  CHECK(json.json()["findings"][0]["problem"] == "index");

  const CliResult unasked = device.Fsck({"--rebuild-index"});
  CHECK(unasked.code == 2);
  CHECK(absl::StrContains(unasked.err, "--yes"));
  const CliResult rebuilt = device.Fsck({"--rebuild-index", "--yes"});
  CHECK(rebuilt.code == 0);
  CHECK(absl::StrContains(rebuilt.out, "index.lost"));
  CHECK(device.Fsck().code == 0);
}

TEST_CASE("fsck exits 2 when it cannot check") {
  Device device;
  CHECK(Run({"fsck", device.scratch.path("nothing"), "--identity", device.identity}).code == 2);
  CHECK(Run({"fsck", device.options.dir, "--identity", device.scratch.path("nothing")}).code == 2);
  CHECK(Run({"fsck"}).code == 2);
  CHECK(device.Fsck({"--rebuild-index", "--headers-only"}).code == 2);
  CHECK(device.Fsck({"--threads", "0"}).code == 2);
  const std::unique_ptr<NvmeDevice> in_use = device.Open();
  const CliResult refused = device.Fsck();
  CHECK(refused.code == 2);
  CHECK(refused.out.empty());
  CHECK(absl::StrContains(refused.err, "locked by another process"));
}

}  // namespace kvkeep::tools
