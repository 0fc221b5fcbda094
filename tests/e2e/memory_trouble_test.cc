// Missing memory: a fallback that is logged once, or a start that ends with one line.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/e2e/arena_mounts.h"
#include "tests/e2e/engine.h"
#include "tiers/base/units.h"

namespace kvkeep::e2e {
namespace {

constexpr int kFailure = 1;

void CheckFails(Site& site, const std::vector<std::string>& said) {
  const Ending end = site.StartAndAwaitEnd();
  INFO("exit status " << end.exit_status << ", signal " << end.signal << ", stderr: " << end.err);
  CHECK(end.exit_status == kFailure);
  CHECK(std::count(end.err.begin(), end.err.end(), '\n') == 1);
  for (const std::string& part : said) {
    INFO("looking for: " << part);
    CHECK(absl::StrContains(end.err, part));
  }
}

size_t Times(const std::string& log, const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(log, text);
  return parts.size() - 1;
}

void CheckServes(Site& site) {
  Engine engine(site);
  const std::vector<TestChunk> chunks = Chunks(1, 8, 1 << 20);
  CHECK(engine.PutAll(chunks));
  CHECK(site.AwaitClean());
  CHECK(engine.Hits(chunks) == chunks.size());
}

// A memory cgroup of version 1 or 2, to start daemons in; empty if this process may not make one.
class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t limit) {
    const std::string name = absl::StrCat("/kvkeep-test-", getpid());
    for (const auto& [mount, file] : {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                                      std::pair("/sys/fs/cgroup", "memory.max")}) {
      dir_ = absl::StrCat(mount, name);
      if (mkdir(dir_.c_str(), 0700) != 0) continue;
      limit_file_ = absl::StrCat(dir_, "/", file);
      procs_file_ = dir_ + "/cgroup.procs";
      if (Write(limit_file_.c_str(), absl::StrCat(limit).c_str())) return;
      rmdir(dir_.c_str());
    }
    limit_file_.clear();
    WARN("skipped: no memory cgroup can be made here");
  }
  ~MemoryGroup() {
    // Once the last process in it has ended for good.
    if (made()) Eventually([this] { return rmdir(dir_.c_str()) == 0; });
  }

  bool made() const { return !limit_file_.empty(); }
  const std::string& limit_file() const { return limit_file_; }
  // For Site::before_exec.
  void Enter() const {
    if (!Write(procs_file_.c_str(), "0")) _exit(97);
  }

 private:
  static bool Write(const char* path, const char* text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const auto bytes = static_cast<ssize_t>(std::strlen(text));
    const bool written = fd >= 0 && write(fd, text, static_cast<size_t>(bytes)) == bytes;
    if (fd >= 0) close(fd);
    return written;
  }

  std::string dir_, limit_file_, procs_file_;
};

}  // namespace

// First, while this process has no threads yet, as they need a mount namespace.
TEST_CASE("the arena's mount is too small, or full") {
  ArenaMounts mounts;
  if (!mounts.Make("size=48m,mode=0700")) return;
  Site site(mounts.With({.g2 = "64MiB"}));
  CheckFails(site, {mounts.writable(), "64 MiB wanted", "48 MiB free", "larger size=", "capacity"});
  site.settings.g2 = "40MiB";
  WriteFile(mounts.writable() + "/of-somebody", std::string(16 << 20, 'x'));
  CheckFails(site, {mounts.writable(), "40 MiB wanted", "32 MiB free", "larger size="});
  site.settings.g2 = "30MiB";
  site.Start();
  CheckServes(site);
}

TEST_CASE("the arena is to lie on huge pages, and there are none") {
  ArenaMounts mounts;
  if (!mounts.Make("pagesize=2M,mode=0700", /*hugetlbfs=*/true)) return;
  Site site(mounts.With({.g2 = "16GiB", .segment_bytes = "1GiB"}));
  CheckFails(site, {mounts.writable(), "raise vm.nr_hugepages"});
  for (const auto& left : std::filesystem::directory_iterator(mounts.writable())) {
    CHECK(left.path().filename() == "arena.lock");
  }
}

TEST_CASE("the arena's mount is missing: an error where it was asked for, else said once") {
  Site site({.arena = "mount", .arena_dir = "/nowhere/rw", .arena_readonly_dir = "/nowhere/ro"});
  CheckFails(site, {"mount_dir /nowhere/rw: cannot open", "No such file"});
  site.settings.arena = "auto";
  site.Start();
  CheckServes(site);
  // When it serves, and when the arena is ready.
  CHECK(site.AwaitLog("G2 starts cold after every restart"));
  CHECK(Times(site.Log(), "there is no usable mount (mount_dir /nowhere/rw") <= 2);
}

TEST_CASE("too little memory may be locked: buffers are not registered, said once, all works") {
  Site site({.g2 = "128MiB", .segment_bytes = "16MiB"});
  site.before_exec = [] {
    const rlimit little{.rlim_cur = 64 * kKiB, .rlim_max = 64 * kKiB};
    if (setrlimit(RLIMIT_MEMLOCK, &little) != 0) _exit(97);
    prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK);  // root would have it; others have none to drop
  };
  site.Start();
  REQUIRE(site.AwaitLog("arena ready"));  // and by the mode of its I/O
  if (!absl::StrContains(site.Log(), "io_uring")) {
    WARN("skipped: no io_uring here");
    return;
  }
  const std::string said = "is not registered for I/O";
  CHECK(Times(site.Log(), said) == 1);
  CHECK(absl::StrContains(site.Log(), "LimitMEMLOCK"));
  CHECK(site.Counter("buffer_registration_failures") == 8);
  CheckServes(site);
  CHECK(Times(site.Log(), said) == 1);
}

TEST_CASE("a cgroup allows less than G2: the start ends before the kernel has to kill") {
  const MemoryGroup group(64 * kMiB);
  if (!group.made()) return;
  Site site({.g2 = "256MiB"});
  site.before_exec = [&group] { group.Enter(); };
  CheckFails(site, {"256 MiB of memory wanted", group.limit_file() + " allows 64 MiB",
                    "lower the capacity or raise that limit"});
}

TEST_CASE("a cgroup allows little beside G2: said once, and it serves") {
  const MemoryGroup group(448 * kMiB);
  if (!group.made() || kSanitized) return;
  Site site({.g2 = "256MiB"});
  const std::string said = "little memory is left beside G2";
  site.before_exec = [&group] { group.Enter(); };
  site.Start();
  CHECK(Times(site.Log(), said) == 1);
  CHECK(absl::StrContains(site.Log(), group.limit_file()));
  CheckServes(site);
  site.Stop();
  site.settings.g2 = "64MiB";
  site.before_exec = [&group] { group.Enter(); };
  site.Start();
  CHECK(Times(site.Log(), said) == 0);
  site.Kill();
}

TEST_CASE("the address space is limited below G2") {
  if (kSanitized) return;  // the sanitizers' shadow alone is more
  Site site({.g2 = "3GiB", .segment_bytes = "1GiB"});
  site.before_exec = [] {
    const rlimit little{.rlim_cur = 3 * kGiB, .rlim_max = 3 * kGiB};
    if (setrlimit(RLIMIT_AS, &little) != 0) _exit(97);
  };
  CheckFails(site, {"no address space for 1073741824 bytes", "ulimit -v", "lower the capacity"});
}

}  // namespace kvkeep::e2e
