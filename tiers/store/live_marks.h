// LiveMarks: marks the blocks of an arena that outlives the daemon at which an image begins that is
// whole and wanted. A restart takes the marked images from G2, and nothing else.
//
// A mark is set once an image is sealed or promoted, including its header. It is cleared at the
// moment that the image is freed, evicted or deleted, even if it is leased. It names the placement,
// so that a header page copied from elsewhere or from an earlier time does not fit it. Each write
// is one aligned store of 8 bytes: a process killed at any point leaves the old mark or the new
// one. Marks are written under the store's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "tiers/base/check.h"
#include "tiers/base/extent.h"
#include "tiers/base/image.h"
#include "tiers/base/key.h"
#include "tiers/base/test_point.h"

namespace kvkeep::store_internal {

class LiveMarks {
 public:
  // `marks`: Arena::live_marks(). Empty: nothing outlives this daemon, and nothing is marked.
  explicit LiveMarks(std::span<uint64_t> marks) : marks_(marks) {}

  // Returns the mark of a placement, which is never 0.
  static uint64_t Of(Incarnation incarnation, Generation generation);

  uint64_t size() const { return marks_.size(); }
  uint64_t at(BlockNumber block) const { return Ref(block).load(std::memory_order_relaxed); }
  // Returns whether the mark where this image begins is the one that was set for it. REQUIRES: at
  // least one extent, inside the arena.
  bool IsOf(const ImagePlacement& image) const {
    return at(image.extents[0].first) == Of(image.incarnation, image.generation);
  }
  // REQUIRES: at least one extent, inside the arena.
  void Set(const ExtentList& image, Incarnation incarnation, Generation generation) {
    KVKEEP_CHECK(!image.empty());
    Store(image[0].first, Of(incarnation, generation));
  }
  void Clear(BlockNumber block) { Store(block, 0); }
  uint64_t CountSet() const;  // walks all marks; for tests and the simulator

 private:
  std::atomic_ref<uint64_t> Ref(BlockNumber block) const {
    return std::atomic_ref<uint64_t>(marks_[block.value()]);
  }
  void Store(BlockNumber block, uint64_t mark) {
    if (marks_.empty()) return;
    KVKEEP_CHECK(block.value() < marks_.size());
    TestPoint(mark == 0 ? "mark-clear" : "mark-set");
    Ref(block).store(mark, std::memory_order_relaxed);
    TestPoint(mark == 0 ? "mark-cleared" : "mark-was-set");
  }

  const std::span<uint64_t> marks_;
};

}  // namespace kvkeep::store_internal
