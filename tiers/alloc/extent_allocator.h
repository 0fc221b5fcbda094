// ExtentAllocator: hands out runs of 4 KiB blocks of one tier's space (the arena, or one device).
//
// Best fit of one run; split into several extents only when no run fits. Fragmentation makes a
// request fail if the longest kMaxExtents runs are not enough, however many blocks are free. A run
// never crosses a barrier (a multiple of `barrier_blocks`: end of an arena segment, end of a data
// file). Fully merged: two free neighbours on one side of a barrier are one run.
//
// Pure state machine: no I/O, no time, no randomness. Not thread-safe: its owner's lock protects
// it. Freeing what is not allocated is our bug and fails a check, on in release.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "tiers/base/extent.h"

namespace kvkeep {

class ExtentAllocator {
 public:
  struct Options {
    BlockCount capacity;  // at least one
    // Runs end at multiples of this. Zero: no barriers. At most 2^20 of them.
    BlockCount barrier_blocks;

    absl::Status Validate() const;
  };
  struct Stats {
    uint64_t allocations = 0;
    uint64_t extents_allocated = 0;   // extents_allocated / allocations = mean extents per chunk
    uint64_t split_allocations = 0;   // answered with more than one extent
    uint64_t failed_allocations = 0;  // not enough free blocks, or more than kMaxExtents needed
    uint64_t near_hits = 0;           // placed right behind `near`
  };

  // All blocks free. REQUIRES: options.Validate() is OK.
  explicit ExtentAllocator(const Options& options);
  ~ExtentAllocator();
  ExtentAllocator(ExtentAllocator&&) noexcept;
  ExtentAllocator& operator=(ExtentAllocator&&) noexcept;

  // Allocates `blocks` > 0 blocks in at most kMaxExtents extents, or nothing. `near`: the block one
  // past a chunk's parent; a free run that starts there and is long enough is taken before the best
  // fit. Several extents come in address order.
  std::optional<ExtentList> Allocate(BlockCount blocks,
                                     std::optional<BlockNumber> near = std::nullopt);

  // Whether Allocate() of so many blocks would succeed.
  bool Fits(BlockCount blocks) const;
  // How many of these blocks are free. O(log runs), and the runs among them.
  uint64_t FreeIn(const Extent& extent) const;

  // REQUIRES: every block of `extents` is allocated.
  void Free(const ExtentList& extents);

  // Recovery: takes exactly these blocks. All or nothing: OutOfRange when beyond capacity or
  // across a barrier, AlreadyExists when a block is taken (by this very list, too),
  // InvalidArgument when an extent is empty. REQUIRES: no Allocate() and no EndRecovery() yet.
  absl::Status Claim(const ExtentList& extents);
  // Prefetches the memory that Claim() of these extents reads. They may be any extents.
  void PrefetchClaim(const ExtentList& extents) const;
  // Ends the recovery: builds the free runs from the taken blocks. Otherwise the first Allocate()
  // does, at its caller's expense: with millions of free runs this takes a second.
  void EndRecovery();

  BlockCount capacity() const;
  BlockCount free_blocks() const;
  // During recovery these two walk all blocks.
  BlockCount largest_free_run() const;
  size_t free_runs() const;
  const Stats& stats() const;

  // Walks all state; for tests and the simulator. Fails a check when an invariant is broken.
  void CheckInvariants() const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace kvkeep
