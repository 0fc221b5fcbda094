#include "tests/e2e/read_only.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kvkeep::e2e {

void MountReadOnly(const char* dir) {
  // A user namespace too: without it only root may make the other one. Root needs none.
  const int namespaces = CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
  const bool done = unshare(namespaces) == 0 &&
                    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    mount(dir, dir, nullptr, MS_BIND, nullptr) == 0 &&
                    mount("none", dir, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
  if (!done) _exit(97);
}

bool ReadOnlyMountsWork(const std::string& dir) {
  const pid_t pid = fork();
  if (pid == 0) {
    MountReadOnly(dir.c_str());
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace kvkeep::e2e
