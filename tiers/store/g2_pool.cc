#include "tiers/store/g2_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

G2Pool::G2Pool(std::string tenant, BlockNumber first, BlockCount capacity,
               BlockCount segment_blocks, const Limits& pool_limits,
               std::unique_ptr<EvictionPolicy> eviction_policy, PlaceIndex::Node* nodes)
    : limits(pool_limits),
      policy(std::move(eviction_policy)),
      places(first, capacity, nodes),
      tenant_(std::move(tenant)),
      first_(first.value()),
      allocator_({.capacity = capacity, .barrier_blocks = segment_blocks}) {
  KVKEEP_CHECK(segment_blocks.value() == 0 || first_ % segment_blocks.value() == 0);
}

std::optional<ExtentList> G2Pool::Allocate(BlockCount blocks, std::optional<BlockNumber> near) {
  if (near.has_value()) {
    near =
        near->value() >= first_ ? std::optional(BlockNumber(near->value() - first_)) : std::nullopt;
  }
  std::optional<ExtentList> extents = allocator_.Allocate(blocks, near);
  if (!extents.has_value()) return std::nullopt;
  for (Extent& extent : *extents) extent.first = BlockNumber(extent.first.value() + first_);
  return extents;
}

uint64_t G2Pool::FreeIn(const Extent& extent) const {
  return allocator_.FreeIn({BlockNumber(extent.first.value() - first_), extent.count});
}

void G2Pool::Free(const ExtentList& extents) {
  if (broken_.empty()) return allocator_.Free(Relative(extents));
  for (const Extent& extent : extents) {
    uint64_t from = extent.first.value();
    ForEachBroken(extent, [&](const Extent& page) {
      const uint64_t first = std::max(page.first.value(), from);
      FreeRun(from, first);
      from = std::min(page.end(), extent.end());
      withheld_blocks_ += from - first;
    });
    FreeRun(from, extent.end());
  }
}

void G2Pool::LookAgain(const PackedExtents& resident) {
  if (broken_.empty()) return;
  for (const Extent& extent : resident.list()) {
    ForEachBroken(extent, [this](const Extent& page) { newly_broken_.push_back(page); });
  }
}

void G2Pool::ForEachBroken(const Extent& in, absl::FunctionRef<void(const Extent&)> page) const {
  auto at = broken_.upper_bound(in.first.value());
  if (at != broken_.begin() && std::prev(at)->second.end() > in.first.value()) --at;
  for (; at != broken_.end() && at->first < in.end(); ++at) page(at->second);
}

void G2Pool::FreeRun(uint64_t first, uint64_t end) {
  if (first < end) allocator_.Free(Relative({{BlockNumber(first), BlockCount(end - first)}}));
}

void G2Pool::AwaitMemory(const Extent& extent) {
  KVKEEP_CHECK(Claim({extent}).ok());
  KVKEEP_CHECK(to_come_.emplace(extent.first.value(), extent.end()).second);
  to_come_blocks_ += extent.count.value();
}

void G2Pool::AddMemory(const Extent& extent) {
  const uint64_t first = extent.first.value();
  auto run = to_come_.upper_bound(first);
  KVKEEP_CHECK(extent.count.value() > 0 && run != to_come_.begin());
  run = std::prev(run);
  const uint64_t run_first = run->first, run_end = run->second;
  KVKEEP_CHECK(extent.end() <= run_end && extent.count.value() <= to_come_blocks_);
  to_come_.erase(run);
  if (run_first < first) to_come_[run_first] = first;
  if (extent.end() < run_end) to_come_[extent.end()] = run_end;
  to_come_blocks_ -= extent.count.value();
  Free({extent});
}

bool G2Pool::HasMemory(BlockNumber block) const {
  const auto after = to_come_.upper_bound(block.value());
  return after == to_come_.begin() || std::prev(after)->second <= block.value();
}

absl::Status G2Pool::Claim(const ExtentList& extents) {
  for (const Extent& extent : extents) {
    if (extent.first.value() < first_)
      return absl::OutOfRangeError("before the pool's first block");
  }
  return allocator_.Claim(Relative(extents));
}

bool G2Pool::Owns(BlockNumber block) const {
  return block.value() >= first_ && block.value() - first_ < built().value();
}

void G2Pool::CheckInvariants() const {
  allocator_.CheckInvariants();
  KVKEEP_CHECK(gathered_blocks <= allocator_.free_blocks().value());
  KVKEEP_CHECK(limits.capacity_blocks <= there_blocks());
}

ExtentList G2Pool::Relative(ExtentList extents) const {
  for (Extent& extent : extents) extent.first = BlockNumber(extent.first.value() - first_);
  return extents;
}

}  // namespace kvkeep::store_internal
