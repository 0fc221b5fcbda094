// ExtentAllocator against a bitmap that does the same in the plainest way.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"
#include "tiers/alloc/extent_allocator.h"

namespace kvkeep {
namespace {

struct Run {
  uint64_t first;
  uint64_t count;
};

class Bitmap {
 public:
  Bitmap(uint64_t capacity, uint64_t barrier) : taken_(capacity), barrier_(barrier) {}

  std::vector<Run> FreeRuns() const {
    std::vector<Run> runs;
    for (uint64_t block = 0; block < taken_.size(); ++block) {
      if (taken_[block]) continue;
      const bool continues = block > 0 && !taken_[block - 1] && !IsBarrier(block);
      if (continues) {
        ++runs.back().count;
      } else {
        runs.push_back({block, 1});
      }
    }
    return runs;
  }
  uint64_t free_blocks() const {
    return static_cast<uint64_t>(std::count(taken_.begin(), taken_.end(), false));
  }
  uint64_t FreeIn(const Extent& extent) const {
    uint64_t free = 0;
    for (uint64_t block = extent.first.value(); block < extent.end(); ++block) {
      free += block < taken_.size() && !taken_[block];
    }
    return free;
  }
  bool IsBarrier(uint64_t block) const { return barrier_ != 0 && block % barrier_ == 0; }
  // Flips blocks from !taken to taken. Returns false, and changes nothing, if one was not so or is
  // out of range, or the extent crosses a barrier.
  bool Mark(const ExtentList& extents, bool taken) {
    std::vector<bool> marked = taken_;
    for (const Extent& extent : extents) {
      for (uint64_t block = extent.first.value(); block < extent.end(); ++block) {
        if (block >= marked.size() || marked[block] == taken) return false;
        if (block > extent.first.value() && IsBarrier(block)) return false;
        marked[block] = taken;
      }
    }
    taken_ = std::move(marked);
    return true;
  }

 private:
  std::vector<bool> taken_;
  uint64_t barrier_;
};

// Checks the answer to a request of `blocks` against the free runs before it.
void CheckAnswer(std::vector<Run> runs, uint64_t blocks, std::optional<BlockNumber> near,
                 const std::optional<ExtentList>& answer) {
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run& a, const Run& b) { return a.count < b.count; });
  const Run* single = nullptr;
  for (const Run& run : runs) {
    if (run.count < blocks) continue;
    if (single == nullptr) single = &run;
    if (near.has_value() && run.first == near->value()) single = &run;
  }
  if (single != nullptr) {
    REQUIRE(answer.has_value());
    REQUIRE(answer->size() == 1);
    REQUIRE(answer->front().first.value() == single->first);
    REQUIRE(answer->front().count.value() == blocks);
    return;
  }
  size_t needed = 0;
  uint64_t reached = 0;
  for (auto run = runs.rbegin(); run != runs.rend() && reached < blocks; ++run, ++needed) {
    reached += run->count;
  }
  const bool possible = reached >= blocks && needed <= kMaxExtents;
  REQUIRE(answer.has_value() == possible);
  if (!possible) return;
  REQUIRE(answer->size() == needed);
  REQUIRE(TotalBlocks(*answer).value() == blocks);
  REQUIRE(std::is_sorted(answer->begin(), answer->end()));
}

class Comparison {
 public:
  Comparison(uint64_t seed, uint64_t capacity, uint64_t barrier)
      : random_(seed),
        capacity_(capacity),
        allocator_({.capacity = BlockCount(capacity), .barrier_blocks = BlockCount(barrier)}),
        bitmap_(capacity, barrier) {}

  // First a recovery: existing extents are claimed, and some of them given up.
  void Recover(uint64_t steps) {
    for (uint64_t i = 0; i < steps; ++i) {
      random_.Chance(0.8) ? ClaimOne() : FreeOne();
      Compare();
    }
    if (random_.Chance(0.5)) allocator_.EndRecovery();  // otherwise the first allocation ends it
  }
  void Step() {
    random_.Chance(0.5) ? AllocateOne() : FreeOne();
    Compare();
  }
  const ExtentAllocator::Stats& stats() const { return allocator_.stats(); }
  uint64_t claims() const { return claims_; }

 private:
  void Compare() {
    const std::vector<Run> runs = bitmap_.FreeRuns();
    uint64_t largest = 0;
    for (const Run& run : runs) largest = std::max(largest, run.count);
    REQUIRE(allocator_.free_blocks().value() == bitmap_.free_blocks());
    REQUIRE(allocator_.free_runs() == runs.size());
    REQUIRE(allocator_.largest_free_run().value() == largest);
    allocator_.CheckInvariants();
  }
  void AllocateOne() {
    // Mostly small, sometimes far too much, so that splits and refusals are common too.
    const uint64_t blocks =
        random_.Chance(0.8) ? random_.Between(1, 12) : random_.Between(1, capacity_ + 2);
    std::optional<BlockNumber> near;
    if (!held_.empty() && random_.Chance(0.5)) {
      near = BlockNumber(held_[random_.Below(held_.size())].back().end());
    }
    const std::vector<Run> runs = bitmap_.FreeRuns();
    const Extent part{BlockNumber(random_.Below(capacity_)), BlockCount(random_.Between(1, 20))};
    REQUIRE(allocator_.FreeIn(part) == bitmap_.FreeIn(part));
    const bool fits = allocator_.Fits(BlockCount(blocks));
    const auto answer = allocator_.Allocate(BlockCount(blocks), near);
    REQUIRE(fits == answer.has_value());
    CheckAnswer(runs, blocks, near, answer);
    if (!answer.has_value()) return;
    REQUIRE(bitmap_.Mark(*answer, true));
    held_.push_back(*answer);
  }
  void FreeOne() {
    if (held_.empty()) return;
    std::swap(held_[random_.Below(held_.size())], held_.back());
    allocator_.Free(held_.back());
    REQUIRE(bitmap_.Mark(held_.back(), false));
    held_.pop_back();
  }
  void ClaimOne() {
    ExtentList extents;
    for (uint64_t i = random_.Between(1, 3); i > 0; --i) {
      extents.push_back(
          {BlockNumber(random_.Below(capacity_ + 1)), BlockCount(random_.Between(1, 4))});
    }
    const absl::Status status = allocator_.Claim(extents);
    REQUIRE(status.ok() == bitmap_.Mark(extents, true));
    if (!status.ok()) return;
    held_.push_back(extents);
    ++claims_;
  }

  SeededRandom random_;
  const uint64_t capacity_;
  ExtentAllocator allocator_;
  Bitmap bitmap_;
  std::vector<ExtentList> held_;
  uint64_t claims_ = 0;
};

}  // namespace

TEST_CASE("ExtentAllocator does what a bitmap does, for any sequence of calls") {
  uint64_t near_hits = 0, splits = 0, failures = 0, claims = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SeededRandom sizes(seed);
    const uint64_t capacity = sizes.Between(1, 400);
    const uint64_t barrier = sizes.Chance(0.3) ? 0 : sizes.Between(1, 100);
    CAPTURE(seed, capacity, barrier);
    Comparison comparison(seed, capacity, barrier);
    comparison.Recover(sizes.Below(200));
    for (int step = 0; step < 1000; ++step) comparison.Step();
    near_hits += comparison.stats().near_hits;
    splits += comparison.stats().split_allocations;
    failures += comparison.stats().failed_allocations;
    claims += comparison.claims();
  }
  // The sequences must reach the cases that they are for.
  CHECK(near_hits > 500);
  CHECK(splits > 500);
  CHECK(failures > 500);
  CHECK(claims > 500);
}

}  // namespace kvkeep
