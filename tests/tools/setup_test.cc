// What `kvkeep init` finds on a machine and chooses for it, and how `up` and `down` fail.
#include "tools/kvkeep/setup.h"

#include <absl/strings/match.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "config/config.h"
#include "tests/tools/cli_run.h"
#include "tests/tools/environment.h"
#include "tiers/base/units.h"
#include "tools/kvkeep/launch.h"

namespace kvkeep::tools {
namespace {

SetupFacts LargeNode() {
  return {.is_root = true,
          .available_bytes = 1000 * kGiB,
          .config_dir = "/etc/kvkeep",
          .state_dir = "/var/lib/kvkeep",
          .cache_dir = "/var/cache/kvkeep"};
}

Config ConfigOf(const Setup& setup) {
  const LoadResult loaded = LoadConfig(setup.yaml, "kvkeep.yaml");
  for (const std::string& error : loaded.errors) FAIL_CHECK(error);
  REQUIRE(loaded.config.has_value());
  CHECK(loaded.warnings.empty());
  return *loaded.config;
}

// A machine's files, below a directory.
class FakeMachine {
 public:
  FakeMachine() { sources.root = dir_.path("m"); }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = sources.root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Make(const std::string& path) const {
    std::filesystem::create_directories(sources.root + path);
  }
  // /dev/block/MAJOR:MINOR of sysfs leads to this place.
  void Link(const std::string& device, const std::string& place) const {
    Make("/sys/devices/" + place);
    Make("/sys/dev/block");
    std::filesystem::create_directory_symlink(sources.root + "/sys/devices/" + place,
                                              sources.root + "/sys/dev/block/" + device);
  }

  FactSources sources;

 private:
  const TemporaryDirectory dir_;
};

}  // namespace

TEST_CASE("init takes a quarter of the memory, and drives of their own") {
  SetupFacts facts = LargeNode();
  facts.file_systems = {
      {"/", "ext4", true, false, 500 * kGiB, 400 * kGiB},
      {"/mnt/nvme0", "xfs", true, true, 4000 * kGiB, 3990 * kGiB},
      {"/mnt/nvme1", "xfs", true, true, 4000 * kGiB, 1000 * kGiB},
      {"/mnt/disk", "ext4", false, true, 9000 * kGiB, 9000 * kGiB},
  };
  const Setup setup = ChooseSetup(facts);
  const Config config = ConfigOf(setup);
  CHECK(setup.file == "/etc/kvkeep/kvkeep.yaml");
  CHECK(config.g2.capacity_bytes == 250 * kGiB);
  REQUIRE(config.g3.paths.size() == 2);
  CHECK(config.g3.paths[0].dir == "/mnt/nvme0/kvkeep");
  CHECK(config.g3.paths[0].capacity_bytes == 3591 * kGiB);
  // Other programs have files on that drive.
  CHECK(config.g3.paths[1].capacity_bytes == 500 * kGiB);
  CHECK(config.g3.admission == "second_use");
  CHECK(config.listen.unix_path == "/run/kvkeep/kvkeep.sock");
  CHECK(setup.directories ==
        std::vector<std::string>{"/mnt/nvme0/kvkeep", "/mnt/nvme1/kvkeep", "/var/lib/kvkeep"});
}

TEST_CASE("without a drive of its own, G3 takes half of what is free where the cache lies") {
  SetupFacts facts = LargeNode();
  facts.file_systems = {{"/", "ext4", false, false, 500 * kGiB, 101 * kGiB}};
  const Config config = ConfigOf(ChooseSetup(facts));
  REQUIRE(config.g3.paths.size() == 1);
  CHECK(config.g3.paths[0].dir == "/var/cache/kvkeep/g3");
  CHECK(config.g3.paths[0].capacity_bytes == 50 * kGiB);
}

TEST_CASE("without a local file system there is no G3, and init says so") {
  SetupFacts facts = LargeNode();
  const Setup none = ChooseSetup(facts);
  CHECK(ConfigOf(none).g3.paths.empty());
  CHECK(none.g3_bytes == 0);
  CHECK(absl::StrContains(none.notes.back(), "there is no G3"));
  facts.file_systems = {{"/", "ext4", true, false, 500 * kGiB, kGiB}};
  CHECK(ConfigOf(ChooseSetup(facts)).g3.paths.empty());
}

TEST_CASE("a cgroup's limit bounds G2") {
  SetupFacts facts = LargeNode();
  facts.memory_limit_bytes = 28 * kGiB;
  facts.memory_limit_path = "/sys/fs/cgroup/memory.max";
  const Setup setup = ChooseSetup(facts);
  CHECK(ConfigOf(setup).g2.capacity_bytes == 20 * kGiB);
  CHECK(absl::StrContains(setup.yaml, "/sys/fs/cgroup/memory.max, 28.0 GiB"));
}

TEST_CASE("a small machine gets a small G2 that fits, in small segments") {
  for (const uint64_t mib : {300, 700, 1500, 3000}) {
    SetupFacts facts = LargeNode();
    facts.available_bytes = mib * kMiB;
    const Config config = ConfigOf(ChooseSetup(facts));
    INFO(mib);
    CHECK(config.g2.capacity_bytes <= mib * kMiB / 2);
    CHECK(config.g2.capacity_bytes >= 64 * kMiB);
    CHECK(config.g2.capacity_bytes % config.g2.segment_bytes == 0);
    CHECK(config.limits.max_chunks <= mib * kMiB / 8 / 800);
  }
  CHECK(ConfigOf(ChooseSetup(LargeNode())).limits.max_chunks == LimitsConfig{}.max_chunks);
  SetupFacts unknown = LargeNode();
  unknown.available_bytes.reset();
  CHECK(ConfigOf(ChooseSetup(unknown)).g2.capacity_bytes == kGiB);
}

TEST_CASE("a user's daemon keeps all in the user's directories") {
  FakeMachine machine;
  machine.sources.home = "/users/ann b";
  machine.sources.xdg_config_home = "not/absolute";
  const SetupFacts facts = GatherFacts(machine.sources);
  const Setup setup = ChooseSetup(facts);
  CHECK(setup.file == "/users/ann b/.config/kvkeep/kvkeep.yaml");
  const Config config = ConfigOf(setup);
  CHECK(config.state.dir == "/users/ann b/.local/state/kvkeep");
  // The CLI looks for a user's sockets in these places.
  CHECK(config.listen.unix_path == "/users/ann b/.local/state/kvkeep/kvkeep.sock");
  CHECK(config.listen.admin_path == "/users/ann b/.local/state/kvkeep/admin.sock");
}

TEST_CASE("the mounts of G2 are used where they are") {
  SetupFacts facts = LargeNode();
  facts.arena_is_mounted = true;
  facts.arena_bytes = 100 * kGiB;
  const Config config = ConfigOf(ChooseSetup(facts));
  CHECK(config.g2.capacity_bytes == 99 * kGiB);
  CHECK(config.g2.arena == ArenaChoice::kMount);
  CHECK(config.g2.arena_dir == "/var/lib/kvkeep/arena/rw");
}

TEST_CASE("facts: drives by mountinfo and sysfs, engines by their packages") {
  FakeMachine machine;
  machine.sources.is_root = true;
  machine.Write("/proc/meminfo", "MemAvailable: 8388608 kB\n");
  machine.Make("/run/systemd/system");
  machine.Make("/mnt/my drive");
  machine.Make("/mnt/striped");
  machine.Make("/mnt/mixed");
  machine.Make("/var/lib/other");
  machine.Write("/lib/systemd/system/kvkeepd.service", "");
  machine.Make("/data");
  machine.Make("/home");
  machine.Write("/proc/self/mountinfo",
                "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
                "12 1 259:1 / /var/lib/other rw - xfs /dev/nvme0n1p1 rw\n"
                "2 1 259:1 / /mnt/my\\040drive rw,noatime shared:1 - xfs /dev/nvme0n1p1 rw\n"
                "3 1 259:1 / /mnt/again rw - xfs /dev/nvme0n1p1 rw\n"
                "4 1 259:1 /inside /mnt/bound rw - xfs /dev/nvme0n1p1 rw\n"
                "5 1 9:0 / /mnt/striped rw - xfs /dev/md0 rw\n"
                "6 1 9:1 / /mnt/mixed rw - xfs /dev/md1 rw\n"
                "7 1 0:30 / /data rw - nfs4 server:/data rw\n"
                "8 1 8:2 / /home rw - ext4 /dev/sda2 rw\n"
                "9 1 garbage\n"
                "10 1 0:31 / /var/lib/kvkeep/arena/rw rw - tmpfs kvkeep rw\n"
                "11 1 0:31 / /var/lib/kvkeep/arena/ro ro - tmpfs kvkeep rw\n");
  machine.Link("8:1", "pci0/host0/block/sda/sda1");
  machine.Link("8:2", "pci0/host0/block/sda/sda2");
  machine.Link("259:1", "pci0/nvme/nvme0/nvme0n1/nvme0n1p1");
  machine.Link("9:0", "virtual/block/md0");
  machine.Link("9:1", "virtual/block/md1");
  machine.Make("/sys/devices/virtual/block/md0/slaves/nvme1n1");
  machine.Make("/sys/devices/virtual/block/md0/slaves/nvme2n1");
  machine.Make("/sys/devices/virtual/block/md1/slaves/nvme3n1");
  machine.Make("/sys/devices/virtual/block/md1/slaves/sdb");
  machine.Make("/site/vllm-0.33.0.dist-info");
  machine.Make("/site/vllm_plugin-1.dist-info");
  machine.Make("/site/lmcache-0.5.6.dist-info");
  machine.sources.python_dirs = {machine.sources.root + "/none", machine.sources.root + "/site"};
  const SetupFacts facts = GatherFacts(machine.sources);
  CHECK(facts.available_bytes == 8 * kGiB);
  CHECK(facts.has_systemd);
  CHECK(facts.arena_is_mounted);
  CHECK(facts.has_unit);
  std::vector<std::string> found;
  for (const LocalFileSystem& each : facts.file_systems) {
    found.push_back(each.mount_point + (each.nvme ? " nvme" : "") + (each.own ? " own" : ""));
  }
  CHECK(found == std::vector<std::string>{"/", "/mnt/my drive nvme own", "/mnt/striped nvme own",
                                          "/mnt/mixed own"});
  REQUIRE(facts.engines.size() == 2);
  CHECK(facts.engines[0].name == "vllm");
  CHECK(facts.engines[0].version == "0.33.0");
  const std::vector<std::string> hints = EngineHints(facts.engines);
  CHECK(absl::StrContains(hints[0], "vllm 0.33.0: --kv-transfer-config '{"));
  CHECK(absl::StrContains(hints[1], "lmcache 0.5.6: --l2-adapter '{"));
}

TEST_CASE("a path that YAML would read otherwise is quoted") {
  SetupFacts facts = LargeNode();
  facts.file_systems = {{"/mnt/a: \"b\" \\ # {c}", "xfs", true, true, 100 * kGiB, 100 * kGiB}};
  CHECK(ConfigOf(ChooseSetup(facts)).g3.paths.at(0).dir == "/mnt/a: \"b\" \\ # {c}/kvkeep");
}

TEST_CASE("init writes a file once, with directories that only their owner sees") {
  const TemporaryDirectory dir;
  const ScopedEnvironment home("HOME", dir.path("home").c_str());
  const std::string file = dir.path("made/kvkeep.yaml");
  const CliResult printed = Run({"init", "--config", file, "--print"});
  CHECK(printed.code == kOk);
  CHECK_FALSE(std::filesystem::exists(file));
  if (geteuid() == 0) return;  // otherwise it would make directories of this machine
  REQUIRE(Run({"init", "--config", file}).code == kOk);
  const CliResult again = Run({"init", "--config", file});
  CHECK(again.code == kFailed);
  CHECK(absl::StrContains(again.err, "is there already"));
}

TEST_CASE("up and down say what is wrong") {
  const TemporaryDirectory dir;
  const std::string none = "unix://" + dir.path("no.sock");
  const CliResult up = Run({"--endpoint", none, "up", "--config", dir.path("no.yaml")});
  CHECK(up.code == kNotFound);
  CHECK(absl::StrContains(up.err, "kvkeep init --config"));
  std::ofstream(dir.path("bad.yaml")) << "g2: {capacity: much}\n";
  const CliResult bad = Run({"--endpoint", none, "up", "--config", dir.path("bad.yaml")});
  CHECK(bad.code == kFailed);
  CHECK(absl::StrContains(bad.err, "g2.capacity"));
  const CliResult down = Run({"--admin", none, "down"});
  CHECK(down.code == kUnavailable);
  CHECK(absl::StrContains(down.err, "no daemon answers"));
  CHECK(Run({"--admin", "localhost:1", "down"}).code != kOk);
  CHECK(Run({"up", "--service", "--foreground"}).code == kUsage);
}

TEST_CASE("the unit of --service names this binary and file") {
  const auto unit = ServiceUnit("/opt/100% $py \"q\\/kvkeepd", "/etc/kvkeep/kvkeep.yaml", true);
  REQUIRE(unit.ok());
  CHECK(absl::StartsWith(*unit, std::string(kUnitIsOurs) + "\n"));
  CHECK(absl::StrContains(*unit,
                          "ExecStart=\"/opt/100%% $$py \\\"q\\\\/kvkeepd\" --config "
                          "\"/etc/kvkeep/kvkeep.yaml\"\n"));
  CHECK(absl::StrContains(*unit, "WantedBy=multi-user.target"));
  const auto user = ServiceUnit("/b", "/c", false);
  REQUIRE(user.ok());
  CHECK(absl::StrContains(*user, "WantedBy=default.target"));
  CHECK_FALSE(absl::StrContains(*user, "LimitMEMLOCK"));
  CHECK(absl::IsInvalidArgument(ServiceUnit("/b\nExecStartPre=/x", "/c", true).status()));
  CHECK(absl::IsInvalidArgument(ServiceUnit("/b", "c.yaml", true).status()));
}

TEST_CASE("what cannot be made leaves no config behind") {
  const TemporaryDirectory dir;
  const ScopedEnvironment home("HOME", dir.path("home").c_str());
  const ScopedEnvironment state("XDG_STATE_HOME", nullptr);
  const ScopedEnvironment config("XDG_CONFIG_HOME", nullptr);
  std::ofstream(dir.path("home")) << "no directory";
  const std::string file = dir.path("kvkeep.yaml");
  if (geteuid() == 0) return;  // else it would make directories of this machine
  const CliResult failed = Run({"init", "--config", file});
  CHECK(failed.code == kFailed);
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("beside the package's unit, init says which directories it may not write to") {
  SetupFacts facts = LargeNode();
  facts.file_systems = {{"/mnt/nvme0", "xfs", true, true, 4000 * kGiB, 3990 * kGiB}};
  for (const std::string& note : ChooseSetup(facts).notes) {
    CHECK_FALSE(absl::StrContains(note, "ReadWritePaths"));
  }
  facts.has_unit = true;
  CHECK(absl::StrContains(ChooseSetup(facts).notes.back(), "ReadWritePaths=/mnt/nvme0/kvkeep"));
  facts.file_systems = {{"/", "ext4", false, false, 500 * kGiB, 100 * kGiB}};
  for (const std::string& note : ChooseSetup(facts).notes) {
    CHECK_FALSE(absl::StrContains(note, "ReadWritePaths"));
  }
}

}  // namespace kvkeep::tools
