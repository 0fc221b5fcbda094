// A daemon in a sandbox that forbids io_uring, and the sockets that a daemon opens to the network
// by itself.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <set>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

// Forbids it as container runtimes do. Makes system calls only, for Site::before_exec.
void ForbidIoUring() {
  std::array<sock_filter, 4> code = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_io_uring_setup},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog program{.len = code.size(), .filter = code.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    _exit(97);
  }
}

// Returns the inodes of a process's sockets, as text.
std::set<std::string> SocketsOf(uint64_t pid) {
  std::set<std::string> inodes;
  const std::string dir = absl::StrCat("/proc/", pid, "/fd");
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(entry.path(), gone);
    if (absl::StartsWith(link, "socket:[")) inodes.insert(link.substr(8, link.size() - 9));
  }
  return inodes;
}

// Returns the lines of a table of /proc/net whose inode (the field numbered `field`) is in
// `inodes`.
std::vector<std::string> Lines(const std::set<std::string>& inodes, const std::string& table,
                               size_t field) {
  std::vector<std::string> lines;
  for (const auto line : absl::StrSplit(ReadFile("/proc/net/" + table), '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() > field && inodes.contains(fields[field])) lines.emplace_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("where io_uring is forbidden threads do its work, which is said, and nothing is lost") {
  Site site({.devices = {{.capacity = "256MiB"}}});
  const std::vector<TestChunk> chunks = Chunks(1, 12, (1 << 20) + 9);
  site.before_exec = ForbidIoUring;
  site.Start();
  REQUIRE(site.AwaitLog("arena ready"));
  CHECK(absl::StrContains(site.Status().io_engine(), "thread pool"));
  CHECK(absl::StrContains(site.Log(), "io_uring"));  // why
  Engine engine(site);
  CHECK(engine.PutAll(chunks, {.durable = true}));
  site.Kill();
  site.before_exec = ForbidIoUring;
  site.Start();
  Engine after(site);
  CHECK(after.Hits(chunks) == chunks.size());
  CHECK(after.wrong_bytes == 0);
  CHECK(site.Stop().exit_status == 0);
}

TEST_CASE("a daemon that no network was named to has no socket that is seen outside of files") {
  Site site({.local = true});
  site.Start();
  Engine engine(site);
  CHECK(engine.PutAll(Chunks(1, 4, 1 << 20)));
  const std::set<std::string> sockets = SocketsOf(site.Status().pid());
  CHECK(sockets.size() >= 3);
  for (const char* table : {"tcp", "tcp6", "udp", "udp6", "raw", "raw6"}) {
    INFO(table);
    CHECK(Lines(sockets, table, 9).empty());
  }
  // Each other socket is bound to a file, or to nothing; '@' is a name that the whole host sees.
  const std::vector<std::string> unix_sockets = Lines(sockets, "unix", 6);
  CHECK(unix_sockets.size() >= 3);
  for (const std::string& line : unix_sockets) {
    INFO(line);
    CHECK_FALSE(absl::StrContains(line, "@"));
  }
}

}  // namespace kvkeep::e2e
