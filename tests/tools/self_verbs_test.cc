// doctor, completions and the manual page.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/tools/cli_run.h"
#include "tools/kvkeep/command_tree.h"
#include "tools/kvkeep/doctor.h"

namespace kvkeep::tools {
namespace {

// A machine where all is well for G2 of 1 GiB, as files below a directory.
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
  // "state: found / to do" of that subject.
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

// What bash offers for these words, the last of which is being typed.
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
       {"memory", "huge pages", "locked memory", "io_uring", "NUMA", "clock", "space of"}) {
    INFO(subject);
    CHECK(absl::StartsWith(well.Of(subject), "ok: "));
  }
}

TEST_CASE("the doctor says of each thing in the way what it costs and what to do") {
  Well well;
  well.Write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always advise [never]\n");
  CHECK(
      absl::StartsWith(well.Of("huge pages"), "warn: for shared memory: never / G2 will be on 4"));
  well.Write("/proc/meminfo", "MemAvailable: 1048576 kB\n");  // G2, but not what is beside it
  CHECK(absl::StartsWith(well.Of("memory"), "fail: 1.0 GiB available"));
  well.machine.locked_limit = 8 << 20;
  CHECK(absl::StartsWith(well.Of("locked memory"), "warn: at most 8.0 MiB"));
  well.machine.io_uring = false;
  CHECK(absl::StrContains(well.Of("io_uring"), "seccomp"));
  well.Write("/proc/sys/kernel/io_uring_disabled", "2\n");
  CHECK(absl::StrContains(well.Of("io_uring"), "sysctl kernel.io_uring_disabled=0"));
  well.Write("/sys/devices/system/node/online", "0-1\n");
  CHECK(absl::StartsWith(well.Of("NUMA"), "warn: nodes 0-1"));
  well.Write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  CHECK(absl::StrContains(well.Of("clock"), "clocksource=tsc"));
  well.machine.now_seconds = 0;
  CHECK(absl::StartsWith(well.Of("clock"), "fail: "));
  well.config.g3.paths[0].capacity_bytes = uint64_t{1} << 60;
  CHECK(absl::StartsWith(well.Of("space of"), "fail: "));
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
