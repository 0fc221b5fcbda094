// The two mounts of an arena, in this process's own mount namespace, which its daemons inherit.
// Call Make before the process has any thread.
#pragma once

#include <sys/mount.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/e2e/daemon.h"
#include "tests/tiers/host/child_process.h"

namespace kvkeep::e2e {

class ArenaMounts {
 public:
  // Returns false, and prints why, if this process may not mount.
  bool Make(const std::string& options, bool hugetlbfs = false) {
    static const bool entered = EnterMountNamespace();
    if (!entered) {
      WARN("skipped: " << kNotPermitted);
      return false;
    }
    for (const std::string& dir : {room_.writable, room_.readonly}) {
      REQUIRE(mkdir(dir.c_str(), 0700) == 0);
    }
    REQUIRE((hugetlbfs ? room_.MountHugetlbfs(options) : room_.MountTmpfs(options)));
    return true;
  }
  ~ArenaMounts() {
    for (const std::string& dir : {room_.readonly, room_.writable}) {
      umount2(dir.c_str(), MNT_DETACH);
    }
  }

  const std::string& writable() const { return room_.writable; }
  Settings With(Settings settings) const {
    settings.arena_dir = room_.writable;
    settings.arena_readonly_dir = room_.readonly;
    return settings;
  }

 private:
  const ScratchDir dir_;
  const MountRoom room_{dir_.path(), dir_ / "rw", dir_ / "ro"};
};

}  // namespace kvkeep::e2e
