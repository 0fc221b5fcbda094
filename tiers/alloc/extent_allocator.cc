#include "tiers/alloc/extent_allocator.h"

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tiers/alloc/block_bitmap.h"
#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

// 1 PiB. Block numbers stay meaningful as byte offsets, and the bitmap fits in an address space.
constexpr uint64_t kMaxCapacityBlocks = (uint64_t{1} << 50) / kBlockBytes;
// Each barrier is one run to start with; with 1 GiB segments this is a tier of 1 PiB.
constexpr uint64_t kMaxBarriers = uint64_t{1} << 20;

std::string Describe(const Extent& extent) {
  return absl::StrCat("extent of ", extent.count.value(), " blocks at ", extent.first.value());
}

}  // namespace

// Uses bare integers, as all code here is arithmetic on blocks.
struct ExtentAllocator::Rep {
  using RunsByEnd = absl::btree_map<uint64_t, uint64_t>;
  using RunsBySize = absl::btree_set<std::pair<uint64_t, uint64_t>>;

  explicit Rep(const Options& options)
      : capacity(options.capacity.value()),
        barrier(options.barrier_blocks.value()),
        free_blocks(capacity) {
    taken.emplace(capacity);
  }

  // Calls visit(first, end) for each free run of `taken`, in address order.
  template <typename Visit>
  void EachFreeRun(Visit visit) const {
    const uint64_t step = barrier == 0 ? capacity : barrier;
    for (uint64_t begin = 0; begin < capacity;) {
      const uint64_t end = begin + std::min(step, capacity - begin);
      for (uint64_t at = taken->NextFree(begin, end); at < end;) {
        const uint64_t run_end = taken->NextTaken(at, end);
        visit(at, run_end);
        at = taken->NextFree(run_end, end);
      }
      begin = end;
    }
  }

  void EndRecovery() {
    if (!taken.has_value()) return;
    KVKEEP_CHECK(by_end.empty() && by_size.empty());
    std::vector<std::pair<uint64_t, uint64_t>> runs;
    EachFreeRun([&](uint64_t first, uint64_t end) {
      by_end.emplace_hint(by_end.end(), end, first);
      runs.emplace_back(end - first, first);
    });
    taken.reset();
    std::sort(runs.begin(), runs.end());
    for (const auto& run : runs) by_size.insert(by_size.end(), run);
  }

  bool IsBarrier(uint64_t block) const { return barrier != 0 && block % barrier == 0; }
  // REQUIRES: count > 0 and first + count does not overflow.
  bool CrossesBarrier(uint64_t first, uint64_t count) const {
    return barrier != 0 && first / barrier != (first + count - 1) / barrier;
  }
  // Returns whether the run is a valid extent: in range, not empty, on one side of every barrier.
  bool IsWellFormed(uint64_t first, uint64_t count) const {
    return count > 0 && count <= capacity && first <= capacity - count &&
           !CrossesBarrier(first, count);
  }

  // Returns the free run that holds `block`, or else the next one above it.
  RunsByEnd::iterator RunAtOrAbove(uint64_t block) { return by_end.upper_bound(block); }

  // Takes `count` blocks from the front of a run, so that its end, the key, stays. `sized` is the
  // same run in by_size.
  Extent TakeFront(RunsByEnd::iterator run, RunsBySize::iterator sized, uint64_t count) {
    const auto [size, first] = *sized;
    KVKEEP_CHECK(run->second == first && run->first == first + size);
    KVKEEP_CHECK(count > 0 && count <= size && count <= free_blocks);
    by_size.erase(sized);
    if (count == size) {
      by_end.erase(run);
    } else {
      run->second = first + count;
      KVKEEP_CHECK(by_size.insert({size - count, first + count}).second);
    }
    free_blocks -= count;
    return Extent{BlockNumber(first), BlockCount(count)};
  }

  Extent TakeSized(RunsBySize::iterator sized, uint64_t count) {
    const auto run = by_end.find(sized->second + sized->first);
    KVKEEP_CHECK(run != by_end.end());
    return TakeFront(run, sized, count);
  }

  // Returns nullopt if no run starts at `near`, or it is too short.
  std::optional<Extent> TakeNear(uint64_t near, uint64_t count) {
    const auto run = RunAtOrAbove(near);
    if (run == by_end.end() || run->second != near || run->first - near < count) {
      return std::nullopt;
    }
    const auto sized = by_size.find({run->first - near, near});
    KVKEEP_CHECK(sized != by_size.end());
    return TakeFront(run, sized, count);
  }

  // Returns nullopt if no run is long enough.
  std::optional<Extent> TakeBestFit(uint64_t count) {
    const auto best = by_size.lower_bound({count, 0});
    if (best == by_size.end()) return std::nullopt;
    return TakeSized(best, count);
  }

  // Returns whether the longest kMaxExtents runs have so many blocks.
  bool Fits(uint64_t count) const {
    uint64_t reachable = 0;
    size_t runs = 0;
    for (auto run = by_size.rbegin(); run != by_size.rend() && runs < kMaxExtents; ++run, ++runs) {
      reachable += run->first;
      if (reachable >= count) return true;
    }
    return false;
  }

  uint64_t FreeIn(uint64_t first, uint64_t end) const {
    uint64_t free = 0;
    for (auto run = by_end.upper_bound(first); run != by_end.end() && run->second < end; ++run) {
      free += std::min(run->first, end) - std::max(run->second, first);
    }
    return free;
  }

  // Takes the longest runs first, the lowest of equals, which needs the fewest extents; takes the
  // rest from the run that fits best. Returns an empty list if more than kMaxExtents would be
  // needed.
  ExtentList TakeSplit(uint64_t count) {
    ExtentList extents;
    if (!Fits(count)) return extents;
    uint64_t left = count;
    while (left > 0) {
      if (std::optional<Extent> last = TakeBestFit(left)) {
        extents.push_back(*last);
        break;
      }
      KVKEEP_CHECK(!by_size.empty());
      const uint64_t longest = by_size.rbegin()->first;
      KVKEEP_CHECK(longest < left);
      extents.push_back(TakeSized(by_size.lower_bound({longest, 0}), longest));
      left -= longest;
    }
    KVKEEP_CHECK(extents.size() <= kMaxExtents);
    // In address order, so that a split image is read in one sweep.
    std::sort(extents.begin(), extents.end());
    return extents;
  }

  void Release(uint64_t first, uint64_t count) {
    KVKEEP_CHECK(IsWellFormed(first, count) && count <= capacity - free_blocks);
    free_blocks += count;
    if (taken.has_value()) {
      KVKEEP_CHECK(taken->GiveBack(first, count));
      return;
    }
    const uint64_t end = first + count;
    const auto above = RunAtOrAbove(first);
    const bool has_above = above != by_end.end();
    KVKEEP_CHECK(!has_above || above->second >= end);  // else part of it is free already

    uint64_t merged_first = first;
    uint64_t merged_end = end;
    const bool joins_above = has_above && above->second == end && !IsBarrier(end);
    if (joins_above) {
      merged_end = above->first;
      KVKEEP_CHECK(by_size.erase({above->first - above->second, above->second}) == 1);
    }
    const auto below = above == by_end.begin() ? by_end.end() : std::prev(above);
    const bool joins_below = below != by_end.end() && below->first == first && !IsBarrier(first);
    if (joins_below) {
      merged_first = below->second;
      KVKEEP_CHECK(by_size.erase({below->first - below->second, below->second}) == 1);
    }
    // Changes by_end at most once, and last: any change invalidates its iterators.
    if (joins_above) {
      above->second = merged_first;
      if (joins_below) by_end.erase(below);
    } else if (joins_below) {
      by_end.insert(by_end.erase(below), {merged_end, merged_first});
    } else {
      by_end.insert(above, {merged_end, merged_first});
    }
    KVKEEP_CHECK(by_size.insert({merged_end - merged_first, merged_first}).second);
  }

  absl::Status ClaimOne(const Extent& extent) {
    const uint64_t first = extent.first.value();
    const uint64_t count = extent.count.value();
    if (count == 0) return absl::InvalidArgumentError(absl::StrCat(Describe(extent), ": empty"));
    if (count > capacity || first > capacity - count) {
      return absl::OutOfRangeError(
          absl::StrCat(Describe(extent), ": beyond the capacity of ", capacity, " blocks"));
    }
    if (CrossesBarrier(first, count)) {
      return absl::OutOfRangeError(absl::StrCat(
          Describe(extent), ": crosses a boundary, there is one every ", barrier, " blocks"));
    }
    if (!taken->Take(first, count)) {
      return absl::AlreadyExistsError(absl::StrCat(Describe(extent), ": a block of it is taken"));
    }
    KVKEEP_CHECK(count <= free_blocks);
    free_blocks -= count;
    return absl::OkStatus();
  }

  const uint64_t capacity;
  const uint64_t barrier;  // zero: none
  uint64_t free_blocks;
  // The free runs, twice. By end (-> first): cutting a run from its front, the common case, then
  // changes a value and not a key. By (size, first): the best fit, the lowest of equals.
  RunsByEnd by_end;
  RunsBySize by_size;
  // During recovery; the two are empty then.
  std::optional<BlockBitmap> taken;
  Stats stats;
};

absl::Status ExtentAllocator::Options::Validate() const {
  if (capacity.value() == 0 || capacity.value() > kMaxCapacityBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("capacity: ", capacity.value(), " blocks, must be 1 to ", kMaxCapacityBlocks));
  }
  if (barrier_blocks.value() != 0 &&
      (capacity.value() - 1) / barrier_blocks.value() >= kMaxBarriers) {
    return absl::InvalidArgumentError(
        absl::StrCat("barrier_blocks: ", barrier_blocks.value(), " cuts ", capacity.value(),
                     " blocks into more than ", kMaxBarriers, " parts; make it larger"));
  }
  return absl::OkStatus();
}

ExtentAllocator::ExtentAllocator(const Options& options) {
  KVKEEP_CHECK(options.Validate().ok());
  rep_ = std::make_unique<Rep>(options);
}
ExtentAllocator::~ExtentAllocator() = default;
ExtentAllocator::ExtentAllocator(ExtentAllocator&&) noexcept = default;
ExtentAllocator& ExtentAllocator::operator=(ExtentAllocator&&) noexcept = default;

std::optional<ExtentList> ExtentAllocator::Allocate(BlockCount blocks,
                                                    std::optional<BlockNumber> near) {
  const uint64_t count = blocks.value();
  KVKEEP_CHECK(count > 0);
  rep_->EndRecovery();
  ExtentList extents;
  if (count <= rep_->free_blocks) {
    std::optional<Extent> run;
    if (near.has_value()) run = rep_->TakeNear(near->value(), count);
    if (run.has_value()) {
      ++rep_->stats.near_hits;
    } else {
      run = rep_->TakeBestFit(count);
    }
    if (run.has_value()) {
      extents.push_back(*run);
    } else {
      extents = rep_->TakeSplit(count);
    }
  }
  if (extents.empty()) {
    ++rep_->stats.failed_allocations;
    return std::nullopt;
  }
  ++rep_->stats.allocations;
  rep_->stats.extents_allocated += extents.size();
  if (extents.size() > 1) ++rep_->stats.split_allocations;
  return extents;
}

bool ExtentAllocator::Fits(BlockCount blocks) const {
  rep_->EndRecovery();
  return blocks.value() <= rep_->free_blocks && rep_->Fits(blocks.value());
}

uint64_t ExtentAllocator::FreeIn(const Extent& extent) const {
  rep_->EndRecovery();
  return rep_->FreeIn(extent.first.value(), extent.end());
}

void ExtentAllocator::Free(const ExtentList& extents) {
  for (const Extent& extent : extents) rep_->Release(extent.first.value(), extent.count.value());
}

absl::Status ExtentAllocator::Claim(const ExtentList& extents) {
  KVKEEP_CHECK(rep_->taken.has_value());
  for (size_t i = 0; i < extents.size(); ++i) {
    absl::Status status = rep_->ClaimOne(extents[i]);
    if (status.ok()) continue;
    for (size_t taken = 0; taken < i; ++taken) {
      rep_->Release(extents[taken].first.value(), extents[taken].count.value());
    }
    return status;
  }
  return absl::OkStatus();
}

void ExtentAllocator::PrefetchClaim(const ExtentList& extents) const {
  KVKEEP_CHECK(rep_->taken.has_value());
  for (const Extent& extent : extents) rep_->taken->Prefetch(extent.first.value());
}

void ExtentAllocator::EndRecovery() { rep_->EndRecovery(); }

BlockCount ExtentAllocator::capacity() const { return BlockCount(rep_->capacity); }
BlockCount ExtentAllocator::free_blocks() const { return BlockCount(rep_->free_blocks); }
BlockCount ExtentAllocator::largest_free_run() const {
  uint64_t largest = rep_->by_size.empty() ? 0 : rep_->by_size.rbegin()->first;
  if (rep_->taken.has_value()) {
    rep_->EachFreeRun(
        [&](uint64_t first, uint64_t end) { largest = std::max(largest, end - first); });
  }
  return BlockCount(largest);
}
size_t ExtentAllocator::free_runs() const {
  size_t runs = rep_->by_end.size();
  if (rep_->taken.has_value()) rep_->EachFreeRun([&](uint64_t, uint64_t) { ++runs; });
  return runs;
}
const ExtentAllocator::Stats& ExtentAllocator::stats() const { return rep_->stats; }

void ExtentAllocator::CheckInvariants() const {
  uint64_t sum = 0;
  std::optional<uint64_t> previous_end;
  const auto check_run = [&](uint64_t first, uint64_t end) {
    KVKEEP_CHECK(first < end && rep_->IsWellFormed(first, end - first));
    // Two free neighbours are one run, unless a barrier is between them.
    KVKEEP_CHECK(!previous_end || *previous_end < first ||
                 (*previous_end == first && rep_->IsBarrier(first)));
    sum += end - first;
    previous_end = end;
  };
  KVKEEP_CHECK(rep_->by_size.size() == rep_->by_end.size());
  if (rep_->taken.has_value()) {
    KVKEEP_CHECK(rep_->by_end.empty());
    rep_->EachFreeRun(check_run);
  }
  for (const auto& [end, first] : rep_->by_end) {
    check_run(first, end);
    KVKEEP_CHECK(rep_->by_size.contains({end - first, first}));
  }
  KVKEEP_CHECK(sum == rep_->free_blocks && sum <= rep_->capacity);
}

}  // namespace kvkeep
