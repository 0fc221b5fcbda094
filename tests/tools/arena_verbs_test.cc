// kvkeep arena status and drop: on files that look like an arena's, and with a daemon.
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/tools/cli_run.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"

namespace kvkeep::tools {
namespace {

const std::string kNowhere = "unix:///nonexistent/kvkeep.sock";

// A directory on tmpfs with what a stopped daemon leaves behind.
class LeftArena {
 public:
  LeftArena() {
    std::string pattern = "/dev/shm/kvkeep-tools-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) return;
    struct statfs fs {};
    on_tmpfs_ = statfs(pattern.c_str(), &fs) == 0 && fs.f_type == TMPFS_MAGIC;
    dir_ = pattern;
    std::ofstream(path("arena.lock"));
    for (const char* segment : {"segment.000", "segment.001"}) {
      std::ofstream(path(segment)) << std::string(kMiB, 's');
    }
    std::ofstream(path("arena.marks")) << std::string(8192, 'm');
    REQUIRE(symlink("v1:0123:1048576:2097152", path("arena.id").c_str()) == 0);
    std::ofstream(path("other")) << "not the arena's";
  }
  ~LeftArena() {
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  // Returns false, and prints it, if there is no tmpfs at /dev/shm here.
  bool Usable() const {
    if (!on_tmpfs_) WARN("skipped: /dev/shm is no tmpfs that this user may write");
    return on_tmpfs_;
  }
  const std::string& dir() const { return dir_; }
  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  UniqueFd LockAsDaemon() const {
    UniqueFd fd(open(path("arena.lock").c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(flock(fd.get(), LOCK_EX | LOCK_NB) == 0);
    return fd;
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir_), {}));
  }

 private:
  std::string dir_;
  bool on_tmpfs_ = false;
};

}  // namespace

TEST_CASE("arena status without a daemon reads the mount: what is held, and that nobody uses it") {
  const LeftArena arena;
  if (!arena.Usable()) return;
  const CliResult json = Run({"arena", "status", "--dir", arena.dir(), "--json"});
  REQUIRE(json.code == kOk);
  CHECK(json.json()["source"] == "mount");
  CHECK(json.json()["in_use"] == false);
  CHECK(json.json()["segments"] == 2);
  CHECK(json.json()["id"] == "v1:0123:1048576:2097152");
  CHECK(json.json()["held_bytes"] == 2 * kMiB + 8192);
  const CliResult text = Run({"arena", "status", "--dir", arena.dir()});
  CHECK(text.out.find("2.0 MiB held by 2 segments") != std::string::npos);
  CHECK(text.out.find("no daemon uses it") != std::string::npos);
  CHECK(text.out.find("kvkeep arena drop") != std::string::npos);

  const UniqueFd lock = arena.LockAsDaemon();
  CHECK(Run({"arena", "status", "--dir", arena.dir(), "--json"}).json()["in_use"] == true);
}

TEST_CASE("arena drop removes the arena's files and no other, and says how many bytes came back") {
  const LeftArena arena;
  if (!arena.Usable()) return;
  CHECK(Run({"arena", "drop", "--dir", arena.dir()}).code == kUsage);  // no --yes, no terminal
  CHECK(arena.files() == 6);
  const CliResult dropped = Run({"arena", "drop", "--dir", arena.dir(), "--yes", "--json"});
  REQUIRE(dropped.code == kOk);
  CHECK(dropped.json()["files"] == 4);
  CHECK(dropped.json()["given_back_bytes"].get<uint64_t>() +
            dropped.json()["still_held_bytes"].get<uint64_t>() ==
        2 * kMiB + 8192);
  CHECK(arena.files() == 2);
  CHECK(std::filesystem::exists(arena.path("arena.lock")));
  CHECK(std::filesystem::exists(arena.path("other")));
  const CliResult again = Run({"arena", "drop", "--dir", arena.dir(), "--yes"});
  CHECK(again.code == kOk);
  CHECK(again.out.find("gave back 0 B (0 bytes, 0 files)") == 0);
}

TEST_CASE("arena drop refuses while a daemon holds the lock, and leaves everything") {
  const LeftArena arena;
  if (!arena.Usable()) return;
  const UniqueFd lock = arena.LockAsDaemon();
  const CliResult refused = Run({"arena", "drop", "--dir", arena.dir(), "--yes"});
  CHECK(refused.code == kFailed);
  CHECK(refused.err.find("a daemon uses it") != std::string::npos);
  CHECK(refused.out.empty());
  CHECK(arena.files() == 6);
}

TEST_CASE("the directory may come from the daemon's file") {
  const LeftArena arena;
  if (!arena.Usable()) return;
  TemporaryDirectory dir;
  std::ofstream(dir.path("kv.yaml"))
      << "g2: {arena_dir: " << arena.dir() << ", arena_readonly_dir: /mnt/ro}\n";
  const CliResult status = Run({"--admin", kNowhere, "--timeout", "1s", "arena", "status", "--json",
                                "--config", dir.path("kv.yaml")});
  REQUIRE(status.code == kOk);
  CHECK(status.json()["dir"] == arena.dir());
  CHECK(Run({"arena", "drop", "--config", dir.path("kv.yaml"), "--yes"}).code == kOk);
  CHECK(arena.files() == 2);

  std::ofstream(dir.path("memfd.yaml")) << "g2: {arena: memfd}\n";
  const CliResult none = Run({"arena", "drop", "--config", dir.path("memfd.yaml"), "--yes"});
  CHECK(none.code == kNotFound);
  CHECK(none.err.find("g2.arena_dir is not set") != std::string::npos);
  std::ofstream(dir.path("bad.yaml")) << "g2: {arena_dri: /x}\n";
  const CliResult bad = Run({"arena", "drop", "--config", dir.path("bad.yaml"), "--yes"});
  CHECK(bad.code == kUsage);
  CHECK(bad.err.find("did you mean 'g2.arena_dir'") != std::string::npos);
}

TEST_CASE("arena status asks the daemon when one runs") {
  fakes::FakeDaemon daemon;
  const CliResult status = Run(daemon, {"arena", "status", "--json"});
  REQUIRE(status.code == kOk);
  CHECK(status.json()["source"] == "daemon");
  CHECK(status.json().contains("arena"));
  CHECK(status.json().contains("used_bytes"));
}

TEST_CASE("arena: wrong usage, no daemon and no mount are told apart") {
  CHECK(Run({"arena"}).code == kUsage);
  CHECK(Run({"arena", "drop", "--yes"}).code == kUsage);  // where?
  CHECK(Run({"arena", "drop", "--dir", "/a", "--config", "/b", "--yes"}).code == kUsage);
  const CliResult away = Run({"--admin", kNowhere, "--timeout", "1s", "arena", "status"});
  CHECK(away.code == kUnavailable);
  CHECK(away.err.find("--config FILE or --dir DIR") != std::string::npos);
  CHECK(Run({"arena", "status", "--dir", "/nonexistent"}).code == kNotFound);
  CHECK(Run({"arena", "drop", "--dir", "/proc/self", "--yes"}).code == kFailed);
}

}  // namespace kvkeep::tools
