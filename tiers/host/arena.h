// Arena: the memory of G2, in segments of up to 1 GiB that local clients can map read-only.
//
// Two backings, same interface:
//   mount  files on a private tmpfs (huge=always) or hugetlbfs that the daemon owns, with a
//          read-only bind mount of the same directory through which descriptors for clients are
//          opened. The files outlive the daemon.
//   memfd  sealed memfds (SHRINK|GROW|FUTURE_WRITE) when there are no such mounts: G2 starts cold.
//
// The files of an earlier start are kept if all are there and their format, geometry and owners
// (ArenaOptions::owners) are the same. Otherwise, or with `fresh`, they are removed. One
// arena at a time uses a mount_dir: it holds a lock there. Which blocks begin an image is told by
// marks that no client can reach (live_marks). Bytes inside the arena cannot tell it: clients read
// the whole arena and write payloads, so they can plant a copy of a genuine header there.
//
// On a mount, memory may come in parts. While clients of an earlier daemon still map that daemon's
// arena, this arena has the memory that is free, some of every segment, and takes the rest when it
// comes (TakeMore). Memory that is to come is mapped and handed to clients like all other memory,
// but nobody may touch it.
//
// A block of the arena (BlockNumber) is block n % segment_blocks of segment n / segment_blocks. All
// segments but the last have segment_bytes. Segments are mapped at Create, prefaulted in parallel
// in the background, out of core dumps and of forked children. Thread-safe after Create; memory
// contents are up to the owner of the extents.
//
// A page with an uncorrectable error (tiers/base/memory_errors.h) ends the process that touches it,
// except by a guarded read. On a mount the next start replaces that page by one of zeros and keeps
// all others.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/executor.h"
#include "tiers/base/extent.h"
#include "tiers/base/key.h"
#include "tiers/host/numa.h"

namespace kvkeep {

enum class ArenaBacking { kAuto, kMount, kMemfd };

struct ArenaOptions {
  // At least 1 MiB; rounded down to pages, on hugetlbfs to its own. At most 16384 segments.
  uint64_t capacity_bytes = 0;
  uint64_t segment_bytes = 1ull << 30;  // multiple of 2 MiB, at most 1 GiB (one io_uring buffer)
  ArenaBacking backing = ArenaBacking::kAuto;
  std::string mount_dir;     // tmpfs or hugetlbfs, writable; empty: none
  std::string readonly_dir;  // read-only bind mount of mount_dir
  bool prefault = true;      // touch every page in the background
  // A number that identifies whose store it is, who owns which segments and who may map them. Files
  // of an earlier start are kept only if their number is the same.
  uint64_t owners = 0;
  // Remove the files of an earlier start. The new ones have other pages, which no I/O of a dead
  // process can reach.
  bool fresh = false;
  // Carries the reason why files of an earlier start were not kept from one attempt to the next: an
  // attempt may remove them and then find no memory. Null: not carried.
  std::string* replaced_because = nullptr;
  Numa* numa = nullptr;  // null: RealNuma
  NumaChoice numa_choice = NumaChoice::kAuto;
  int threads = 1;  // that take memory at once: hugetlbfs clears it meanwhile
  // Gets the number of bytes that were taken so far; null: not counted.
  std::atomic<uint64_t>* taken_bytes = nullptr;

  absl::Status Validate() const;
};

class Arena {
 public:
  struct Stats {
    uint64_t capacity_bytes = 0;
    uint64_t segments = 0;
    uint64_t to_come_bytes = 0;  // part of the capacity that has no memory yet
    uint64_t prefaulted_bytes = 0;
    // Part of these, touched page by page for want of MADV_POPULATE_WRITE (Linux 5.14).
    uint64_t prefault_touched_bytes = 0;
    uint64_t prefault_failed_bytes = 0;  // the kernel refused: left to the first use
    // As the kernel tells (smaps), once the prefault has ended; 0 until then.
    uint64_t huge_page_bytes = 0;
    uint64_t reused_segments = 0;  // files of an earlier start, contents kept
    uint64_t marks_bytes = 0;      // of live_marks, on top of the capacity
    // Pages that could not be read: by this process, or by an earlier one and replaced at the
    // start.
    uint64_t memory_errors = 0;
    uint64_t numa_refused_bytes = 0;  // that the kernel would not place on the node asked for
    bool survives_restart = false;
  };

  virtual ~Arena() = default;

  virtual uint64_t capacity_bytes() const = 0;
  virtual BlockCount capacity_blocks() const = 0;
  virtual BlockCount segment_blocks() const = 0;  // the barrier of this arena's extents
  virtual const Uuid& uuid() const = 0;

  // The memory of one extent. REQUIRES: it lies in one segment of the arena and has its memory.
  virtual std::span<std::byte> Memory(const Extent& extent) = 0;

  // One mark for each block of the arena. Not 0: an image begins at the block; what the value means
  // is its writer's business. Where segments of an earlier start are kept, so are their marks; else
  // all are 0. Read and write them with std::atomic_ref. Empty: this arena does not outlive the
  // daemon.
  virtual std::span<uint64_t> live_marks() = 0;

  virtual bool HasMemory(BlockNumber) const { return true; }
  // Extents that have no memory yet, in order, at most one a segment.
  virtual std::vector<Extent> ToCome() const { return {}; }
  // Takes memory for some of them, as far as there is any, for about a tenth of a second. Returns
  // the extents that have memory now; it is zeros. REQUIRES: one thread.
  virtual std::vector<Extent> TakeMore() { return {}; }

  virtual size_t segment_count() const = 0;
  // Returns whether all of the segment has memory. Only then may it be pinned or registered for
  // I/O.
  virtual bool SegmentIsWhole(size_t) const { return true; }
  virtual std::span<std::byte> SegmentMemory(size_t segment) = 0;
  // Returns the NUMA node that the block's memory was asked of, for Executor::PostNear. None if
  // segments are not spread over nodes.
  virtual std::optional<int> NodeOf(BlockNumber) const { return std::nullopt; }
  // The same for a byte of the image that has these extents.
  std::optional<int> NodeOf(const ExtentList& image, uint64_t offset) const {
    return NodeOf(BlockNumber(LocateInImage(image, offset, 1).tier_offset / kBlockBytes));
  }
  // A read-only descriptor of the segment for a client; the caller closes it.
  virtual absl::StatusOr<int> OpenForClient(size_t segment) = 0;

  // The pages in which a memory error was met since the last call, as runs of blocks that do not
  // overlap; only the first thousand errors count. One thread at a time.
  virtual std::vector<Extent> TakeBroken() { return {}; }

  virtual Stats stats() const = 0;
  // Returns one line for the log: the backing and why not the other one, the page kind, whether G2
  // outlives the daemon.
  virtual std::string describe() const = 0;
};

// kAuto takes the mounts if both are there and right, else memfds. kMount takes the mounts, or
// fails with what is missing. A mount that is right, but too small or locked by another daemon, is
// an error with kAuto too. `prefault_executor` runs the prefault (null: there is none) and must
// outlive the arena.
//   InvalidArgument     an option is out of its limits
//   FailedPrecondition  the mounts are not as they must be, or another daemon uses them
//   ResourceExhausted   not enough memory, space, huge pages or descriptors
//   Unavailable         the same for now: clients of an earlier daemon still map too much of it
absl::StatusOr<std::unique_ptr<Arena>> CreateArena(const ArenaOptions& options,
                                                   Executor* prefault_executor);

}  // namespace kvkeep
