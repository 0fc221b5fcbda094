// ArenaImage: the memory of one image in G2, in contiguous runs.
//
// It refers to the arena. It does not say who may read or write the memory: the store tells its
// user that.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "tiers/base/extent.h"
#include "tiers/base/image.h"
#include "tiers/host/arena.h"

namespace kvkeep::store_internal {

class ArenaImage {
 public:
  ArenaImage(Arena* arena, ExtentList extents) : arena_(arena), extents_(std::move(extents)) {}

  // Returns the memory of the image from `offset`, as far as it is contiguous, at most `bytes`.
  static std::span<std::byte> Run(Arena& arena, const ExtentList& extents, uint64_t offset,
                                  uint64_t bytes) {
    const ByteRun run = LocateInImage(extents, offset, bytes);
    const Extent block{BlockNumber(run.tier_offset / kBlockBytes), BlockCount(1)};
    return {arena.Memory(block).data() + run.tier_offset % kBlockBytes, run.bytes};
  }
  std::span<std::byte> Run(uint64_t offset, uint64_t bytes) const {
    return Run(*arena_, extents_, offset, bytes);
  }
  std::span<std::byte> operator()(uint64_t offset, uint64_t bytes) const {
    return Run(offset, bytes);
  }

 private:
  Arena* arena_;
  ExtentList extents_;
};

}  // namespace kvkeep::store_internal
