// BlockSet: a set of the blocks of one tier, one bit each: 32 MiB for a TiB. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/extent.h"

namespace kvkeep {

class BlockSet {
 public:
  explicit BlockSet(BlockCount space) : space_(space.value()), words_((space_ + 63) / 64) {}

  BlockCount space() const { return BlockCount(space_); }
  bool Contains(BlockNumber block) const {
    KVKEEP_CHECK(block.value() < space_);
    return (words_[block.value() / 64] >> (block.value() % 64) & 1) != 0;
  }
  // Adds a block. Returns true if it was not in the set yet.
  bool Insert(BlockNumber block) {
    const bool fresh = !Contains(block);
    words_[block.value() / 64] |= uint64_t{1} << (block.value() % 64);
    return fresh;
  }
  uint64_t Count() const {
    uint64_t count = 0;
    for (const uint64_t word : words_) count += static_cast<uint64_t>(std::popcount(word));
    return count;
  }
  // Returns the first block from `from` on that is in the set (or, with `wanted` false, is not).
  std::optional<BlockNumber> Next(BlockNumber from, bool wanted = true) const {
    uint64_t block = from.value();
    while (block < space_) {
      const uint64_t word = wanted ? words_[block / 64] : ~words_[block / 64];
      const uint64_t rest = word >> (block % 64);
      if (rest != 0) {
        block += static_cast<uint64_t>(std::countr_zero(rest));
        return block < space_ ? std::optional(BlockNumber(block)) : std::nullopt;
      }
      block = (block / 64 + 1) * 64;
    }
    return std::nullopt;
  }

 private:
  uint64_t space_;
  std::vector<uint64_t> words_;
};

}  // namespace kvkeep
