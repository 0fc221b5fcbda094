// ArenaRemains: what an arena holds on its mount. Tools look at it and drop it without a daemon. A
// stopped daemon leaves its memory there (mount_files.h); only this, another geometry at the next
// start, or an unmount gives it back.
//
// Whether a daemon uses the mount is known from the lock on arena.lock. Looking takes it for an
// instant, so a daemon that starts at that very instant finds the mount in use. No state.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

namespace kvkeep {

struct ArenaRemains {
  std::string filesystem;  // "tmpfs, huge=always", "hugetlbfs, 2 MiB pages"
  bool in_use = false;     // by a daemon, or by another tool at this instant
  std::string id;          // what arena.id says, unread; empty: no whole arena
  uint64_t segments = 0;
  uint64_t files = 0;  // segments and files that belong to them
  uint64_t held_bytes = 0;
};

// NotFound: no such directory. FailedPrecondition: neither tmpfs nor hugetlbfs. PermissionDenied.
absl::StatusOr<ArenaRemains> LookAtArena(const std::string& mount_dir);

struct DroppedArena {
  uint64_t files = 0;
  uint64_t bytes = 0;             // that these files held
  uint64_t still_held_bytes = 0;  // of them: clients map them still; theirs when they let go
};

// Removes the identity first, so that no crash on the way leaves something that looks whole.
// FailedPrecondition also: a daemon uses the mount.
absl::StatusOr<DroppedArena> DropArena(const std::string& mount_dir);

}  // namespace kvkeep
