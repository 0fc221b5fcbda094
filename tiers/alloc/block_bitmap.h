// BlockBitmap: a bit for each of a row of blocks, set if it is taken. For a recovery that names
// blocks in any order: the cost of a call depends on its words only, not on the number of taken
// blocks.
//
// 32 MiB a TiB of 4 KiB blocks; regions without a taken block use no memory. Not thread-safe. Uses
// bare integers, as all code inside the allocator is arithmetic on blocks.
#pragma once

#include <cstdint>

#include "tiers/base/growing_memory.h"

namespace kvkeep {

class BlockBitmap {
 public:
  // All free.
  explicit BlockBitmap(uint64_t blocks);

  // Takes all `count` > 0 blocks from `first` on, or none. Returns false if one of them is taken.
  // REQUIRES: they are in the row.
  bool Take(uint64_t first, uint64_t count);
  // Frees them likewise. Returns false if one of them is free.
  bool GiveBack(uint64_t first, uint64_t count);
  // Prefetches the block's word. Ignores a block outside of the row.
  void Prefetch(uint64_t block) const {
    if (block < blocks_) __builtin_prefetch(&words_[block / 64]);
  }
  // Return the first free block, or the first taken one, in [from, end); `end` when there is none.
  // REQUIRES: end is at most the row's end.
  uint64_t NextFree(uint64_t from, uint64_t end) const { return Next(from, end, ~uint64_t{0}); }
  uint64_t NextTaken(uint64_t from, uint64_t end) const { return Next(from, end, 0); }

 private:
  // Returns the first block in [from, end) whose bit, flipped by `flip`, is set.
  uint64_t Next(uint64_t from, uint64_t end, uint64_t flip) const;
  // Flips the bits of the range if all of them, flipped by `flip`, are clear. Returns whether it
  // did.
  bool FlipAll(uint64_t first, uint64_t count, uint64_t flip);

  const uint64_t blocks_;
  GrowingMemory memory_;
  uint64_t* const words_;  // set: taken
};

}  // namespace kvkeep
