// BlockBitmap: which of a row of blocks are taken, a bit each, for a recovery that names them in
// any order: a call costs its words and nothing that grows with what is taken already.
//
// 32 MiB a TiB of 4 KiB blocks; where nobody took one there is no memory. Not thread-safe. Bare
// integers: inside the allocator all of it is arithmetic on blocks.
#pragma once

#include <cstdint>

#include "tiers/base/growing_memory.h"

namespace kvkeep {

class BlockBitmap {
 public:
  // All free.
  explicit BlockBitmap(uint64_t blocks);

  // All `count` > 0 blocks from `first` on, or nothing. False: one of them is taken. REQUIRES: they
  // are in the row.
  bool Take(uint64_t first, uint64_t count);
  // Likewise. False: one of them is free.
  bool GiveBack(uint64_t first, uint64_t count);
  // The block is looked at soon; one outside of the row is not.
  void Prefetch(uint64_t block) const {
    if (block < blocks_) __builtin_prefetch(&words_[block / 64]);
  }
  // The first free one in [from, end), the first taken one; `end` when there is none. REQUIRES: end
  // is at most the row's end.
  uint64_t NextFree(uint64_t from, uint64_t end) const { return Next(from, end, ~uint64_t{0}); }
  uint64_t NextTaken(uint64_t from, uint64_t end) const { return Next(from, end, 0); }

 private:
  // The first in [from, end) whose bit, flipped by `flip`, is set.
  uint64_t Next(uint64_t from, uint64_t end, uint64_t flip) const;
  // Whether the bits of the range, flipped by `flip`, are all clear; if so they are flipped.
  bool FlipAll(uint64_t first, uint64_t count, uint64_t flip);

  const uint64_t blocks_;
  GrowingMemory memory_;
  uint64_t* const words_;  // set: taken
};

}  // namespace kvkeep
