// Where a chunk lies in a tier: runs of 4 KiB blocks.
#pragma once

#include <absl/container/inlined_vector.h>

#include <algorithm>
#include <cstdint>

#include "tiers/base/check.h"
#include "tiers/base/strong_int.h"
#include "tiers/base/units.h"

namespace kvkeep {

// Index of a block within one tier's space (the arena, or one device), from zero.
using BlockNumber = StrongInt<struct BlockNumberTag, uint64_t>;
using BlockCount = StrongInt<struct BlockCountTag, uint64_t>;

struct Extent {
  BlockNumber first;
  BlockCount count;

  uint64_t end() const { return first.value() + count.value(); }  // one past the last block
  uint64_t bytes() const { return count.value() * kBlockBytes; }
  auto operator<=>(const Extent&) const = default;
};

// In image order: the first block of the first extent holds the header page.
// At most kMaxExtents long, nearly always one.
using ExtentList = absl::InlinedVector<Extent, 1>;

inline BlockCount TotalBlocks(const ExtentList& extents) {
  uint64_t blocks = 0;
  for (const Extent& extent : extents) blocks += extent.count.value();
  return BlockCount(blocks);
}

// A run of bytes of an image that is contiguous in its tier.
struct ByteRun {
  uint64_t tier_offset = 0;  // bytes from the start of the tier's space
  uint64_t bytes = 0;
};

// Returns where the image's bytes from `image_offset` lie, as far as they are contiguous, at most
// `max_bytes`. REQUIRES: image_offset is inside the image.
inline ByteRun LocateInImage(const ExtentList& extents, uint64_t image_offset, uint64_t max_bytes) {
  for (const Extent& extent : extents) {
    if (image_offset < extent.bytes()) {
      return {.tier_offset = extent.first.value() * kBlockBytes + image_offset,
              .bytes = std::min(extent.bytes() - image_offset, max_bytes)};
    }
    image_offset -= extent.bytes();
  }
  KVKEEP_CHECK(false);
  return {};  // without optimisation, GCC does not always see that the check ends the process
}

}  // namespace kvkeep
