// doctor, completions and the manual page.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <sys/statvfs.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/tools/cli_run.h"
#include "tests/tools/json_keys.h"
#include "tiers/base/units.h"
#include "tiers/nvme/device_names.h"
#include "tools/kvkeep/command_tree.h"
#include "tools/kvkeep/doctor.h"
#include "tools/kvkeep/doctor_service.h"

namespace kvkeep::tools {
namespace {

// A machine that suits a G2 of 1 GiB, as files below a directory.
class Well {
 public:
  Well() {
    Write("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8388608 kB\n");
    Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [advise] never\n");
    Write("/sys/devices/system/node/online", "0\n");
    Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    machine = {.root = dir_.path("m"), .locked_limit = UINT64_MAX, .now_seconds = 1'900'000'000};
    config.g2.capacity_bytes = kGiB;
    config.g3.paths = {{.dir = dir_.path("nvme0"), .capacity_bytes = 1}};
  }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = dir_.path("m") + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // Returns "state: found / to do" of that subject.
  std::string Of(const std::string& subject) const {
    for (const Finding& finding : Examine(config, machine)) {
      if (!absl::StartsWith(finding.subject, subject)) continue;
      CHECK((finding.state == Finding::State::kOk) == finding.to_do.empty());
      return absl::StrCat(StateWord(finding.state), ": ", finding.found, " / ", finding.to_do);
    }
    return "none";
  }

  Machine machine;
  Config config;

 private:
  const TemporaryDirectory dir_;
};

// Returns bash's completions for these words, the last of which is being typed.
std::string Completed(const std::string& words) {
  const TemporaryDirectory dir;
  std::ofstream(dir.path("c")) << Run({"completion", "bash"}).out;
  const std::string command = absl::StrCat(
      "bash -c 'source ", dir.path("c"), " && COMP_WORDS=(", words,
      ") && COMP_CWORD=$((${#COMP_WORDS[@]}-1)) && _kvkeep && echo \"${COMPREPLY[*]}\"' 2>&1");
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out(4096, '\0');
  out.resize(fread(out.data(), 1, out.size(), pipe));
  CHECK(pclose(pipe) == 0);
  return out;
}

}  // namespace

TEST_CASE("on a machine where all is well the doctor finds nothing to do") {
  const Well well;
  for (const char* subject :
       {"memory", "memory limit", "pages", "huge pages", "locked memory", "descriptors", "io_uring",
        "NUMA", "clock", "GPU", "admin socket", "space of"}) {
    INFO(subject);
    CHECK(absl::StartsWith(well.Of(subject), "ok: "));
  }
}

TEST_CASE("the doctor says of each thing in the way what it costs and what to do") {
  Well well;
  well.Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always advise [never]\n");
  CHECK(absl::StartsWith(well.Of("huge pages"),
                         "warn: for shared memory: never / G2 will use pages of 4"));
  well.Write("/proc/meminfo", "MemAvailable: 1048576 kB\n");  // G2, but not the memory beside it
  CHECK(absl::StartsWith(well.Of("memory"), "fail: 1.0 GiB available"));
  well.machine.locked_limit = 8 << 20;
  CHECK(absl::StartsWith(well.Of("locked memory"), "warn: at most 8.0 MiB"));
  well.machine.page_bytes = 65536;
  CHECK(well.Of("pages") == "ok: of 64.0 KiB / ");
  CHECK(absl::StrContains(well.Of("huge pages"), "G2 will use pages of 64.0 KiB: echo advise"));
  well.machine.page_bytes = 131072;
  CHECK(absl::StartsWith(well.Of("pages"), "fail: of 128.0 KiB / boot a kernel"));
  well.machine.io_uring = false;
  CHECK(absl::StrContains(well.Of("io_uring"), "seccomp"));
  well.Write("/proc/sys/kernel/io_uring_disabled", "2\n");
  CHECK(absl::StrContains(well.Of("io_uring"), "sysctl kernel.io_uring_disabled=0"));
  well.Write("/sys/devices/system/node/online", "0-1\n");
  CHECK(absl::StartsWith(well.Of("NUMA"), "ok: nodes 0-1; G2 is spread"));
  well.config.g2.numa = PlacementChoice::kOff;
  CHECK(absl::StartsWith(well.Of("NUMA"), "warn: nodes 0-1"));
  well.Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  CHECK(absl::StrContains(well.Of("clock"), "clocksource=tsc"));
  well.machine.now_seconds = 0;
  CHECK(absl::StartsWith(well.Of("clock"), "fail: "));
  well.config.g3.paths[0].capacity_bytes = uint64_t{1} << 60;
  CHECK(absl::StartsWith(well.Of("space of"), "fail: "));
}

TEST_CASE("the doctor takes what a device has of its file system already for the device's") {
  Well well;
  std::string& dir = well.config.g3.paths[0].dir;
  struct statvfs space {};
  REQUIRE(statvfs(std::filesystem::path(dir).parent_path().c_str(), &space) == 0);
  const uint64_t all = space.f_blocks * space.f_frsize, free = space.f_bavail * space.f_frsize;
  well.config.g3.paths[0].capacity_bytes = free + (all - free) / 2;
  CHECK(absl::StartsWith(well.Of("space of"), "warn: "));
  std::filesystem::create_directories(dir);
  std::ofstream(absl::StrCat(dir, "/", kSuperblockName)) << "there";
  CHECK(absl::StartsWith(well.Of("space of"), "ok: "));
}

TEST_CASE("the doctor says that encryption alone finds planted bytes on a drive") {
  Well well;
  CHECK(absl::StartsWith(well.Of("integrity of G3"), "ok: in plain: detects faults, "));
  CHECK(absl::StrContains(well.Of("integrity of G3"), "encryption.master_key_file detects both"));
  well.config.encryption.master_key_file = "/k";
  CHECK(absl::StartsWith(well.Of("integrity of G3"), "ok: encrypted: "));
  well.config.g3.paths.clear();
  CHECK(well.Of("integrity of G3") == "none");
}

TEST_CASE("the doctor computes how many descriptors G2's segments take") {
  Well well;
  well.config.g2.segment_bytes = 1 << 20;
  well.machine.descriptor_limit = 1024;
  CHECK(absl::StartsWith(well.Of("descriptors"),
                         "fail: at most 1024, the daemon needs 1536, 1024 segments of G2 / raise "
                         "RLIMIT_NOFILE"));
  CHECK(absl::StrContains(well.Of("descriptors"), "g2.segment_bytes"));
  well.Write("/usr/lib/systemd/system/kvkeepd.service", "[Service]\nLimitNOFILE=1048576\n");
  CHECK(absl::StartsWith(well.Of("descriptors"), "ok: at most 1048576, the daemon needs 1536"));
  well.Write("/usr/lib/systemd/system/kvkeepd.service", "");
  well.config.g2.arena = ArenaChoice::kMount;
  CHECK(absl::StartsWith(well.Of("descriptors"), "ok: at most 1024, the daemon needs 512"));
}

TEST_CASE("the doctor says what there is of GPUs, and by which path their workers copy") {
  Well well;
  CHECK(absl::StartsWith(well.Of("GPU"),
                         "ok: 0 devices (/dev/nvidia*), the driver's library does "
                         "not load (libcuda.so.1)"));
  CHECK(absl::StrContains(well.Of("GPU"), "copy by the local path, /run/kvkeep/local.sock"));
  for (const char* node : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"}) {
    well.Write(absl::StrCat("/dev/", node), "");
  }
  well.machine.cuda_driver = true;
  CHECK(
      absl::StartsWith(well.Of("GPU"), "ok: 2 devices (/dev/nvidia*), the driver's library loads"));
  CHECK(absl::StrContains(well.Of("GPU"), "the daemon copies for GPU workers that register"));
  well.Write("/lib/systemd/system/kvkeepd.service", "[Service]\nPrivateDevices=yes\n");
  CHECK(absl::StartsWith(well.Of("GPU"), "warn: 2 devices"));
  CHECK(absl::StrContains(well.Of("GPU"),
                          "not as kvkeepd.service, which hides the devices / copy "
                          "gpu.conf.example"));
  const std::string drop_ins = "/etc/systemd/system/kvkeepd.service.d/";
  well.Write(drop_ins + "gpu.conf.example", "[Service]\nPrivateDevices=no\n");  // not read
  CHECK(absl::StartsWith(well.Of("GPU"), "warn: "));
  well.Write(drop_ins + "gpu.conf", "[Service]\nPrivateDevices=no\n");
  CHECK(absl::StartsWith(well.Of("GPU"), "ok: "));
  well.Write(drop_ins + "z.conf", "[Service]\n PrivateDevices=true\n");
  CHECK(absl::StartsWith(well.Of("GPU"), "warn: "));
  well.config.gpu.mode = GpuChoice::kOff;
  CHECK(absl::StrContains(well.Of("GPU"), "the GPU path is off (gpu.mode), GPU workers copy by"));
  well.config.gpu.mode = GpuChoice::kRequired;
  well.machine.cuda_driver = false;
  CHECK(absl::StartsWith(well.Of("GPU"), "fail: 2 devices"));
  CHECK(absl::StrContains(well.Of("GPU"), "the daemon will not start"));
  well.config.gpu.mode = GpuChoice::kAuto;
  well.config.listen.local_path.clear();
  CHECK(absl::StartsWith(well.Of("GPU"), "warn: 2 devices"));
  CHECK(absl::StrContains(well.Of("GPU"), "copy by gRPC, as listen.local is off"));
}

TEST_CASE("the doctor holds the service's memory limit to what the config may come to use") {
  Well well;
  well.config.limits.max_chunks = 1'000'000;
  // 1 GiB and 0.2 % and 25 % of it, 512 MiB, 2 x 128 MiB, 256 MiB, 800 MB of tables, 1 GiB.
  CHECK(MemoryOfDaemon(well.config) == 4'291'808'411);
  CHECK(well.Of("memory limit") ==
        "ok: the daemon may use up to 4.0 GiB; kvkeepd.service has none / ");
  const std::string unit = "/usr/lib/systemd/system/kvkeepd.service";
  well.Write(unit, "[Service]\nOOMScoreAdjust=-500\n");
  CHECK(absl::StrContains(well.Of("memory limit"),
                          "has none / with OOMScoreAdjust=-500 engines are killed first"));
  const std::string drop_in = "/etc/systemd/system/kvkeepd.service.d/memory.conf";
  well.Write(drop_in, "[Service]\nMemoryMax=3G\n");
  CHECK(absl::StartsWith(well.Of("memory limit"), "fail: the daemon may use up to 4.0 GiB; "));
  CHECK(absl::StrContains(well.Of("memory limit"), "MemoryMax=4291808411 or more"));
  for (const char* enough : {"5G", "4.1G", "4096M", "4291808411", "90%"}) {
    CAPTURE(enough);
    well.Write(drop_in, absl::StrCat("[Service]\nMemoryMax=", enough, "\n"));
    CHECK(absl::StartsWith(well.Of("memory limit"), "ok: "));
  }
  well.Write(drop_in, "[Service]\nMemoryMax=infinity\n");
  CHECK(absl::StartsWith(well.Of("memory limit"), "warn: "));
}

TEST_CASE("the doctor warns where one directory has the sockets of two tenants, or the admin's") {
  const TemporaryDirectory dir;
  Well well;
  CHECK(well.Of("admin socket") == "ok: in /run/kvkeep-admin / ");
  CHECK(well.Of("tenants' sockets") == "none");
  well.config.listen.admin_path = "/run/kvkeep/../kvkeep/admin.sock";
  CHECK(
      absl::StartsWith(well.Of("admin socket"),
                       "warn: in /run/kvkeep, with the sockets of tenant default / a container's"));
  well.config.listen.admin_path = "/run/kvkeep/admin/admin.sock";  // given with the one above it
  CHECK(absl::StartsWith(well.Of("admin socket"), "warn: in /run/kvkeep, with the sockets of "));
  // The embedded default has everything in one directory, which is closed.
  well.config.state.dir = "/run/kvkeep/admin";
  CHECK(absl::StartsWith(well.Of("admin socket"), "ok: in the state directory, /run/kvkeep/admin"));

  const std::string own = dir.path("admin");
  std::filesystem::create_directory(own);
  well.config.listen.admin_path = own + "/admin.sock";
  std::filesystem::permissions(own, std::filesystem::perms{0755});
  CHECK(absl::StartsWith(well.Of("admin socket"),
                         absl::StrCat("warn: in ", own, ", mode 0755 / ")));
  CHECK(absl::EndsWith(well.Of("admin socket"), "chmod 0700 " + own));
  std::filesystem::permissions(own, std::filesystem::perms{0700});
  CHECK(well.Of("admin socket") == absl::StrCat("ok: in ", own, " / "));

  well.config.tenants = {{.name = "a", .unix_path = "/run/kvkeep-tenants/a/kvkeep.sock"},
                         {.name = "b", .unix_path = "/run/kvkeep-tenants/b/kvkeep.sock"}};
  CHECK(well.Of("tenants' sockets") == "ok: a directory a tenant / ");
  well.config.tenants[1].local_path = "/run/kvkeep-tenants/a/local.sock";
  CHECK(absl::StartsWith(
      well.Of("tenants' sockets"),
      "warn: those of a lie in /run/kvkeep-tenants/a, with those of b / a pod that gets"));
  well.config.tenants[1].local_path = "/run/kvkeep/b/local.sock";
  CHECK(absl::StartsWith(well.Of("tenants' sockets"),
                         "warn: those of b lie in /run/kvkeep, with those of default / "));
}

TEST_CASE("the doctor judges the paths' speed by what the config wants and plan supposes") {
  Config config;
  const DiskSpeed fast{.written_bytes = kGiB,
                       .read_bytes = kGiB,
                       .write_bytes_per_second = 2e9,
                       .read_bytes_per_second = 3e9};
  const auto judged = [&](std::vector<MeasuredPath> paths) {
    std::string text;
    for (const Finding& finding : JudgeSpeeds(config, paths)) {
      absl::StrAppend(&text, finding.subject, ": ", StateWord(finding.state), ": ", finding.found,
                      " / ", finding.to_do, "\n");
    }
    return text;
  };
  CHECK(judged({{"/a", fast}, {"/b", fast}}) ==
        "speed of /a: ok: writes 2.00 GB/s, reads 3.00 GB/s, by 1.0 GiB / \n"
        "speed of /b: ok: writes 2.00 GB/s, reads 3.00 GB/s, by 1.0 GiB / \n"
        "reads of G3: ok: 6.00 GB/s for all paths, kvkeep plan assumes 6.00 GB/s / \n");
  CHECK(absl::StrContains(judged({{"/a", fast}}), "reads of G3: warn: 3.00 GB/s"));
  CHECK(absl::StrContains(judged({{"/a", fast}}), "kvkeep plan --g3-gb-s 3.00"));
  config.g3.admission = "write_budget";
  config.g3.write_budget_bytes_per_second = 1'000'000'000;
  CHECK(absl::StrContains(judged({{"/a", fast}}), "writes of G3: ok: 2.00 GB/s"));
  config.g3.write_budget_bytes_per_second = 3'000'000'000;
  CHECK(absl::StrContains(judged({{"/a", fast}}), "writes of G3: warn: 2.00 GB/s"));
  // A machine that could not be measured: no sum.
  const std::string some = judged({{"/a", fast}, {"/b", absl::UnavailableError("gone")}});
  CHECK(absl::StrContains(some, "speed of /b: warn: not measured: gone"));
  CHECK_FALSE(absl::StrContains(some, "reads of G3"));
  CHECK(judged({}).empty());
}

TEST_CASE("a disk's speed is measured within its bytes and leaves nothing behind") {
  const TemporaryDirectory dir;
  const absl::StatusOr<DiskSpeed> speed =
      MeasureDiskSpeed(dir.path(""), {.bytes = 3 * kMiB, .piece_bytes = kMiB / 2, .depth = 2});
  if (!speed.ok()) {
    WARN("skipped: no O_DIRECT in the temporary folder: " << speed.status().message());
  } else {
    CHECK(speed->written_bytes == 3 * kMiB);
    CHECK(speed->read_bytes == 3 * kMiB);
    CHECK(speed->write_bytes_per_second > 0);
    CHECK(speed->read_bytes_per_second > 0);
  }
  CHECK(std::filesystem::is_empty(dir.path("")));
  CHECK(absl::IsInvalidArgument(MeasureDiskSpeed(dir.path(""), {.bytes = 1}).status()));
  CHECK(absl::IsInvalidArgument(
      MeasureDiskSpeed(dir.path(""), {.bytes = kMiB, .piece_bytes = 1000}).status()));
  CHECK(absl::IsResourceExhausted(
      MeasureDiskSpeed(dir.path(""), {.bytes = uint64_t{1} << 60}).status()));
  CHECK(absl::IsNotFound(MeasureDiskSpeed(dir.path("none"), {}).status()));
}

TEST_CASE("doctor measures where it is asked to, and its JSON has these keys") {
  const TemporaryDirectory dir;
  std::filesystem::create_directory(dir.path("nvme0"));
  std::ofstream(dir.path("kv.yaml"))
      << "g3: {paths: [{dir: " << dir.path("nvme0") << ", capacity: 64MiB}]}\n";
  const CliResult plain = Run({"--json", "doctor", "--config", dir.path("kv.yaml")});
  CHECK(plain.json()["disk_speeds"].empty());
  const CliResult measured = Run({"--json", "doctor", "--config", dir.path("kv.yaml"),
                                  "--disk-speed", "--disk-bytes", "8MiB"});
  CHECK(measured.json()["disk_speeds"][0]["path"] == dir.path("nvme0"));
  CHECK(measured.json()["findings"].size() > plain.json()["findings"].size());
  CHECK(std::filesystem::is_empty(dir.path("nvme0")));
  CHECK(Run({"doctor", "--disk-speed", "--disk-bytes", "much"}).code == kUsage);
  if (measured.json()["disk_speeds"][0]["measured"] == false) {
    WARN("skipped: no O_DIRECT in the temporary folder: " << measured.json()["findings"].dump());
    return;
  }
  using Keys = std::set<std::string>;
  CHECK(KeysOf(measured) ==
        Keys{"config", "findings", "findings[].subject", "findings[].state", "findings[].found",
             "findings[].to_do", "disk_speeds", "disk_speeds[].path", "disk_speeds[].measured",
             "disk_speeds[].written_bytes", "disk_speeds[].read_bytes",
             "disk_speeds[].write_bytes_per_second", "disk_speeds[].read_bytes_per_second"});
}

TEST_CASE("bash completes verbs, verbs below verbs, and options, wherever these stand") {
  CHECK(absl::StrContains(Completed("kvkeep names"), "namespaces"));
  CHECK(absl::StrContains(Completed("kvkeep --json config \"\""), "show reload"));
  CHECK(absl::StrContains(Completed("kvkeep config show --eff"), "--effective"));
  CHECK(absl::StrContains(Completed("kvkeep evict --ti"), "--tier --timeout"));
  CHECK_FALSE(absl::StrContains(Completed("kvkeep evict --e"), "--effective"));
}

TEST_CASE("each shell has a script that knows each verb; others have none") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = Run({"completion", shell}).out;
    for (const char* verb : {"ping", "top", "config", "reload", "simulate", "doctor"}) {
      INFO(shell << " " << verb);
      CHECK(absl::StrContains(script, verb));
    }
  }
  CHECK(Run({"completion", "csh"}).code == kUsage);
}

TEST_CASE("the manual page has each verb and option, and no line that troff would obey") {
  const Command root{.name = "tool",
                     .help = ".starts with a dot",
                     .options = {{.name = "--flag", .help = "it's\na flag"}},
                     .commands = {{.name = "verb", .help = "'quoted"}}};
  const std::string page = ManualPage(root, "1");
  CHECK(absl::StrContains(page, "\n\\&.starts with a dot\n"));
  CHECK(absl::StrContains(page, "\n\\&'quoted\n"));
  CHECK(absl::StrContains(page, ".B \\-\\-flag\nit's a flag\n"));
  const std::string real = Run({"man"}).out;
  for (const char* verb : {".SS config show\n", ".SS evict\n", ".SS fsck\n"}) {
    INFO(verb);
    CHECK(absl::StrContains(real, verb));
  }
}

}  // namespace kvkeep::tools
