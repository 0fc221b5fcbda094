// PackedExtents: the extents of one image. If the image has one extent, they take 8 bytes.
//
// A chunk has two of these, and there are millions of chunks. One extent is stored as its first
// block and its count. Several extents, which are rare, are in a list of their own. It is a value:
// copies are deep.
#pragma once

#include <cstdint>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/extent.h"

namespace kvkeep::store_internal {

class PackedExtents {
 public:
  PackedExtents() = default;
  PackedExtents(const ExtentList& extents) { *this = extents; }  // NOLINT: it is one
  PackedExtents(const PackedExtents& other) { *this = other.list(); }
  PackedExtents(PackedExtents&& other) noexcept : word_(std::exchange(other.word_, 0)) {}
  ~PackedExtents() { clear(); }
  PackedExtents& operator=(const PackedExtents& other) {
    return this == &other ? *this : *this = other.list();
  }
  PackedExtents& operator=(PackedExtents&& other) noexcept {
    if (this == &other) return *this;
    clear();
    word_ = std::exchange(other.word_, 0);
    return *this;
  }
  PackedExtents& operator=(const ExtentList& extents) {
    clear();
    if (extents.size() == 1) {
      const uint64_t first = extents[0].first.value(), count = extents[0].count.value();
      KVKEEP_CHECK(count > 0 && count <= kMostCount && first <= kMostFirst);
      word_ = first << (kCountBits + 1) | count << 1 | kOne;
    } else if (!extents.empty()) {
      word_ = reinterpret_cast<uintptr_t>(new ExtentList(extents));
    }
    return *this;
  }

  bool empty() const { return word_ == 0; }
  void clear() {
    if (!empty() && !is_one()) delete many();
    word_ = 0;
  }
  ExtentList list() const {
    if (empty()) return {};
    return is_one() ? ExtentList{one()} : *many();
  }
  operator ExtentList() const { return list(); }  // NOLINT: it is one
  // Return the first extent, its first block, and the block behind the last extent. REQUIRES:
  // !empty().
  Extent first() const {
    KVKEEP_CHECK(!empty());
    return is_one() ? one() : many()->front();
  }
  BlockNumber first_block() const {
    KVKEEP_CHECK(!empty());
    return is_one() ? one().first : many()->front().first;
  }
  uint64_t end_block() const {
    KVKEEP_CHECK(!empty());
    return is_one() ? one().end() : many()->back().end();
  }

 private:
  // The largest image has 65,541 blocks. The rest of the word holds a block number.
  static constexpr int kCountBits = 17;
  static constexpr uint64_t kMostCount = (uint64_t{1} << kCountBits) - 1;
  static constexpr uint64_t kMostFirst = UINT64_MAX >> (kCountBits + 1);
  static constexpr uint64_t kOne = 1;  // the lowest bit, which no address of a list has

  bool is_one() const { return (word_ & kOne) != 0; }
  Extent one() const {
    return {BlockNumber(word_ >> (kCountBits + 1)), BlockCount(word_ >> 1 & kMostCount)};
  }
  ExtentList* many() const { return reinterpret_cast<ExtentList*>(word_); }

  uintptr_t word_ = 0;  // 0, one extent, or the address of a list
};

}  // namespace kvkeep::store_internal
