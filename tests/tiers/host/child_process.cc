#include "tests/tiers/host/child_process.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/fakes/coverage.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

bool WriteText(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  return file.good();
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace

bool EnterMountNamespace() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    const bool mapped = WriteText("/proc/self/setgroups", "deny") &&
                        WriteText("/proc/self/uid_map", absl::StrCat("0 ", uid, " 1")) &&
                        WriteText("/proc/self/gid_map", absl::StrCat("0 ", gid, " 1"));
    if (!mapped) return false;
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool Findings::Expect(bool holds, const std::string& what) {
  if (!holds) lines_.push_back(what);
  return holds;
}

std::string Findings::ToString() const { return absl::StrJoin(lines_, "\n"); }

std::string RunInChild(const std::function<void(Findings&)>& body) {
  int ends[2];
  KVKEEP_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  KVKEEP_CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    // A crash has to kill the child, and not be reported by Catch2's handlers in the parent's name.
    for (const int signal_number : {SIGABRT, SIGSEGV}) signal(signal_number, SIG_DFL);
    Findings findings;
    body(findings);
    const std::string report = findings.ToString();
    const bool written = write(ends[1], report.data(), report.size()) >= 0;
    WriteCoverage();
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  const std::string report = ReadAll(ends[0]);
  close(ends[0]);
  int status = 0;
  KVKEEP_CHECK(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return report;
  return absl::StrCat("the child died, wait status ", status, "; it said: ", report);
}

bool MountRoom::MountTmpfs(const std::string& options) const {
  return mount("kvkeep", writable.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) == 0 &&
         BindReadonly();
}

bool MountRoom::MountHugetlbfs(const std::string& options) const {
  return mount("kvkeep", writable.c_str(), "hugetlbfs", MS_NOSUID | MS_NODEV, options.c_str()) ==
             0 &&
         BindReadonly();
}

bool MountRoom::BindReadonly() const {
  const unsigned long remount = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV;
  return mount(writable.c_str(), readonly.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         mount(nullptr, readonly.c_str(), nullptr, remount, nullptr) == 0;
}

std::string RunInMountNamespace(const std::function<void(const MountRoom&, Findings&)>& body) {
  char pattern[] = "/tmp/kvkeep_arena_XXXXXX";
  KVKEEP_CHECK(mkdtemp(pattern) != nullptr);
  const MountRoom room{pattern, absl::StrCat(pattern, "/rw"), absl::StrCat(pattern, "/ro")};
  KVKEEP_CHECK(mkdir(room.writable.c_str(), 0700) == 0 && mkdir(room.readonly.c_str(), 0700) == 0);
  const std::string report = RunInChild([&](Findings& findings) {
    if (findings.Expect(EnterMountNamespace(), kNotPermitted)) body(room, findings);
  });
  std::filesystem::remove_all(room.dir);  // the mounts went with the child's namespace
  return report;
}

}  // namespace kvkeep
