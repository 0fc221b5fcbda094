// PlaceIndex: which chunks of a tier's space begin in which part of it.
//
// The space is a row of blocks, divided into granules whose size is a power of two. A chunk is
// filed by the first block of its image. So code that needs room in one piece finds the chunks
// there (window_search.h). Add and Remove are O(1). The index takes 8 bytes per slot, in memory
// that several indexes share if their tiers divide the slots among them, and 4 bytes per granule.
//
// The store's lock protects it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/extent.h"
#include "tiers/policy/slot_arrays.h"

namespace kvkeep::store_internal {

class PlaceIndex {
 public:
  static constexpr uint64_t kLeastGranuleBlocks = 64;  // 256 KiB
  static constexpr uint64_t kMostGranules = 1 << 22;   // larger spaces have larger granules
  // The neighbours of a slot in its granule's list, each plus one; zero: there is none.
  struct Node {
    uint32_t before = 0, after = 0;
  };

  // Covers the blocks [first, first + count). `nodes`: by slot; zeros for slots in no index.
  PlaceIndex(BlockNumber first, BlockCount count, Node* nodes)
      : first_(first.value()), count_(count.value()), nodes_(nodes) {
    while ((count_ - 1) >> shift_ >= kMostGranules) ++shift_;
    heads_.resize(count_ == 0 ? 0 : ((count_ - 1) >> shift_) + 1);
  }

  // REQUIRES: the slot is in no index.
  void Add(ChunkSlot slot, BlockNumber block) {
    uint32_t& head = heads_[GranuleOf(block)];
    Node& node = nodes_[slot.value()];
    KVKEEP_CHECK(node.before == 0 && node.after == 0);
    node.after = head;
    if (head != 0) nodes_[head - 1].before = slot.value() + 1;
    head = slot.value() + 1;
    ++size_;
  }
  // REQUIRES: it was added with that block.
  void Remove(ChunkSlot slot, BlockNumber block) {
    Node& node = nodes_[slot.value()];
    uint32_t& head = heads_[GranuleOf(block)];
    KVKEEP_CHECK(size_ > 0 && (node.before != 0) == (head != slot.value() + 1));
    (node.before != 0 ? nodes_[node.before - 1].after : head) = node.after;
    if (node.after != 0) nodes_[node.after - 1].before = node.before;
    node = Node();
    --size_;
  }

  uint64_t size() const { return size_; }
  uint64_t granules() const { return heads_.size(); }
  uint64_t GranuleOf(BlockNumber block) const {
    KVKEEP_CHECK(block.value() >= first_ && block.value() - first_ < count_);
    return (block.value() - first_) >> shift_;
  }
  Extent ExtentOf(uint64_t granule) const {
    const uint64_t begin = granule << shift_;
    const uint64_t end = std::min(begin + (uint64_t{1} << shift_), count_);
    return {BlockNumber(first_ + begin), BlockCount(end - begin)};
  }
  // Return the chunks that begin in the granule: First, then Next until kNoSlot.
  ChunkSlot First(uint64_t granule) const { return SlotOf(heads_[granule]); }
  ChunkSlot Next(ChunkSlot slot) const { return SlotOf(nodes_[slot.value()].after); }

 private:
  static ChunkSlot SlotOf(uint32_t link) { return link == 0 ? kNoSlot : ChunkSlot(link - 1); }

  const uint64_t first_, count_;
  uint32_t shift_ = std::bit_width(kLeastGranuleBlocks) - 1;
  Node* const nodes_;
  std::vector<uint32_t> heads_;  // by granule: slot plus one
  uint64_t size_ = 0;
};

}  // namespace kvkeep::store_internal
