// ArenaMount: a tmpfs and its read-only bind mount for a daemon's G2, in this process's own mount
// namespace; gone with the object. Main thread.
#pragma once

#include <sys/mount.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/e2e/daemon.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/host/child_process.h"

namespace kvkeep::crash {

class ArenaMount {
 public:
  // False, and said aloud, where nobody may mount.
  bool Make() {
    static const bool entered = EnterMountNamespace();
    if (!entered) {
      WARN("skipped: " << kNotPermitted);
      return false;
    }
    std::filesystem::create_directory(room_.writable);
    std::filesystem::create_directory(room_.readonly);
    REQUIRE(room_.MountTmpfs("size=128m,mode=0700"));
    return true;
  }
  ~ArenaMount() {
    for (const std::string& dir : {room_.readonly, room_.writable}) {
      umount2(dir.c_str(), MNT_DETACH);
    }
  }
  e2e::Settings With(e2e::Settings settings) const {
    settings.arena_dir = room_.writable;
    settings.arena_readonly_dir = room_.readonly;
    return settings;
  }

 private:
  const ScratchDir dir_;
  const MountRoom room_{dir_.path(), dir_ / "rw", dir_ / "ro"};
};

}  // namespace kvkeep::crash
