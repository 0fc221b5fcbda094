// The mount backing: segment files on a private tmpfs or hugetlbfs, which outlive the daemon.
//
// Clients get descriptors opened through a read-only bind mount of the same directory: the kernel
// then refuses every way to write, truncate, punch or reopen them, for root in a container too.
//
// In mount_dir:
//   arena.lock       flock'ed while a daemon uses the directory
//   arena.id         "v2:<uuid>:<segment bytes>:<capacity bytes>:<owners>", written when all
//                    segments are whole. A symbolic link's target: hugetlbfs has no write(2), and
//                    a link is atomic
//   segment.000 ...  the arena
//   arena.marks      Arena::live_marks(), a u64 a block. No client ever gets it. Version 1 had none
//   arena.part       only while some of the segments' memory is to come: "v1:<uuid>:<piece
//                    bytes>:<pieces>", at most what is there (piece_order.h). Also a link, replaced
//                    by rename. A daemon that does not know it takes all memory, or does not start
//   arena.error-*    a page that could not be read, noted when it was met (memory_errors.h). The
//                    next start has the file drop it and take another, which reads as zeros
// Any other file is left alone.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tiers/base/random.h"
#include "tiers/base/unique_fd.h"
#include "tiers/host/segment_files.h"

namespace kvkeep {

// The two directories, opened and checked. Everything later goes through these descriptors, so that
// mounts made over the paths meanwhile change nothing.
struct MountDirs {
  std::string mount_dir;  // for messages
  UniqueFd writable;
  UniqueFd readonly;
  dev_t device = 0;
  uint64_t page_bytes = 0;  // of the file system: tmpfs has the kernel's, hugetlbfs its own
  bool hugetlbfs = false;
};

// FailedPrecondition, with one line on what is missing or wrong: they cannot be used.
absl::StatusOr<MountDirs> OpenMountDirs(const std::string& mount_dir,
                                        const std::string& readonly_dir);

struct ReuseOptions {
  uint64_t owners = 0;  // of the files that may be used again (ArenaOptions)
  bool fresh = false;   // none may
  std::string* replaced_because = nullptr;  // as ArenaOptions
};

// Takes the lock, then reuses the files of an earlier start with this geometry and these owners, or
// removes what is there and makes new ones. Allocates all their memory. But on tmpfs, where clients
// of an earlier daemon may still map removed segments, it allocates only as much as there is, and
// the rest comes with TakeMore. An arena made so is reused so.
//   FailedPrecondition  another daemon holds the lock
//   ResourceExhausted   not enough space on the mount, or not enough memory behind it
//   Unavailable         it would be enough, but for what such clients map, and what there is is
//                       less than one piece of each segment. Another attempt may find more
absl::StatusOr<std::unique_ptr<SegmentFiles>> CreateMountFiles(const ArenaGeometry& geometry,
                                                               MountDirs dirs, ReuseOptions reuse,
                                                               RandomSource* random);

}  // namespace kvkeep
