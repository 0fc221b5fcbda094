// Arena: the memory of G2, in segments of up to 1 GiB that local clients can map read-only.
//
// Two backings, same interface:
//   mount  files on a private tmpfs (huge=always) or hugetlbfs that the daemon owns, with a
//          read-only bind mount of the same directory through which descriptors for clients are
//          opened. The files outlive the daemon.
//   memfd  sealed memfds (SHRINK|GROW|FUTURE_WRITE) when there are no such mounts: G2 starts cold.
//
// Files of an earlier start are kept as they are when their geometry is the same, else removed. One
// arena at a time uses a mount_dir: it holds a lock there. What the memory held is told by marks
// that no client can reach (live_marks): clients read the whole arena and write payloads, so
// nothing that lies in it, however genuine, says that an image lives there.
//
// On a mount, memory may come in parts: where clients of an earlier daemon still map its arena,
// this one has as much as there is, of every segment some, and the rest when it comes (TakeMore).
// What is to come is mapped and handed to clients as all else; nobody may touch it.
//
// A block of the arena (BlockNumber) is block n % segment_blocks of segment n / segment_blocks. All
// segments but the last have segment_bytes. Segments are mapped at Create, prefaulted in parallel
// in the background, out of core dumps and of forked children. Thread-safe after Create; memory
// contents are the business of whoever owns the extents.
//
// A page with an uncorrectable error (tiers/base/memory_errors.h) ends the process that touches it,
// but for guarded reads; on a mount the next start drops the page, takes another one that reads as
// zeros, and keeps the rest.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/executor.h"
#include "tiers/base/extent.h"
#include "tiers/base/key.h"

namespace kvkeep {

enum class ArenaBacking { kAuto, kMount, kMemfd };

struct ArenaOptions {
  // At least 1 MiB; rounded down to blocks, on hugetlbfs to its pages. At most 16384 segments.
  uint64_t capacity_bytes = 0;
  uint64_t segment_bytes = 1ull << 30;  // multiple of 2 MiB, at most 1 GiB (one io_uring buffer)
  ArenaBacking backing = ArenaBacking::kAuto;
  std::string mount_dir;     // tmpfs or hugetlbfs, writable; empty: none
  std::string readonly_dir;  // read-only bind mount of mount_dir
  bool prefault = true;      // touch every page in the background
  // Names who owns which segments and who may map them: kept files have the same.
  uint64_t owners = 0;
  // Remove the files of an earlier start: other pages, which no I/O of a dead process can reach.
  bool fresh = false;
  // Why files of an earlier start were not kept: of an attempt before this one, which removed them
  // and then found no memory, and for the next one. Null: none counts.
  std::string* replaced_because = nullptr;

  absl::Status Validate() const;
};

class Arena {
 public:
  struct Stats {
    uint64_t capacity_bytes = 0;
    uint64_t segments = 0;
    uint64_t to_come_bytes = 0;  // of the capacity: it has no memory yet
    uint64_t prefaulted_bytes = 0;
    uint64_t prefault_touched_bytes = 0;  // of these, page by page: no MADV_POPULATE_WRITE (5.14)
    uint64_t prefault_failed_bytes = 0;   // the kernel refused: left to the first use
    // As the kernel tells (smaps), once the prefault is through; 0 until then.
    uint64_t huge_page_bytes = 0;
    uint64_t reused_segments = 0;  // files of an earlier start, contents kept
    uint64_t marks_bytes = 0;      // of live_marks, on top of the capacity
    // Pages that could not be read: met by this process, or before and taken anew at its start.
    uint64_t memory_errors = 0;
    bool survives_restart = false;
  };

  virtual ~Arena() = default;

  virtual uint64_t capacity_bytes() const = 0;
  virtual BlockCount capacity_blocks() const = 0;
  virtual BlockCount segment_blocks() const = 0;  // the barrier of this arena's extents
  virtual const Uuid& uuid() const = 0;

  // The memory of one extent. REQUIRES: inside the arena and inside one segment, and not to come.
  virtual std::span<std::byte> Memory(const Extent& extent) = 0;

  // One a block of the arena, of an earlier start where its segments are kept, else 0. Not 0: an
  // image begins there; what the value means is its writer's business. Read and written with
  // std::atomic_ref. Empty: this memory does not outlive the daemon.
  virtual std::span<uint64_t> live_marks() = 0;

  // What has no memory yet, in order, one run a segment at most.
  virtual std::vector<Extent> ToCome() const { return {}; }
  // Takes memory for some of that, as far as there is any, for about a tenth of a second; what came
  // is zeros. REQUIRES: one thread.
  virtual std::vector<Extent> TakeMore() { return {}; }

  virtual size_t segment_count() const = 0;
  // Whether all of the segment has memory: only then it may be pinned, or registered.
  virtual bool SegmentIsWhole(size_t) const { return true; }
  virtual std::span<std::byte> SegmentMemory(size_t segment) = 0;
  // A read-only descriptor of the segment for a client; the caller closes it.
  virtual absl::StatusOr<int> OpenForClient(size_t segment) = 0;

  // Blocks in which a memory error was met since the last call; of the first thousand errors. By
  // one thread at a time.
  virtual std::vector<BlockNumber> TakeBrokenBlocks() { return {}; }

  virtual Stats stats() const = 0;
  // One line for the log: backing, why not the other one, page kind, whether G2 outlives the
  // daemon.
  virtual std::string describe() const = 0;
};

// kAuto: the mounts when both are there and right, else memfd. kMount: an error that says what is
// missing. `prefault_executor` runs the prefault (may be null: none) and must outlive the arena.
// A mount that is right but locked by another daemon or too small is an error with kAuto too.
//   InvalidArgument     an option is out of its limits
//   FailedPrecondition  the mounts are not as they must be, or another daemon uses them
//   ResourceExhausted   not enough memory, space, huge pages or descriptors
//   Unavailable         the same, but it may come: what clients of before map is too much of it
absl::StatusOr<std::unique_ptr<Arena>> CreateArena(const ArenaOptions& options,
                                                   Executor* prefault_executor);

}  // namespace kvkeep
