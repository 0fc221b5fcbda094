#include "client/local/range_allocator.h"

#include <iterator>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

RangeAllocator::RangeAllocator(uint64_t bytes, uint64_t alignment)
    : capacity_(bytes / alignment * alignment), alignment_(alignment) {
  if (capacity_ > 0) gaps_[0] = capacity_;
}

std::optional<uint64_t> RangeAllocator::Allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > capacity_) return std::nullopt;
  bytes = RoundUp(bytes, alignment_);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < bytes) continue;
    const auto [offset, gap_bytes] = *gap;
    gaps_.erase(gap);
    if (gap_bytes > bytes) gaps_[offset + bytes] = gap_bytes - bytes;
    taken_[offset] = bytes;
    used_ += bytes;
    return offset;
  }
  return std::nullopt;
}

void RangeAllocator::Free(uint64_t offset) {
  const auto range = taken_.find(offset);
  KVKEEP_CHECK(range != taken_.end());
  uint64_t bytes = range->second;
  taken_.erase(range);
  used_ -= bytes;
  const auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && after->first == offset + bytes) bytes += after->second;
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      if (after != gaps_.end() && after->first < before->first + before->second) gaps_.erase(after);
      return;
    }
  }
  if (after != gaps_.end() && after->first < offset + bytes) gaps_.erase(after);
  gaps_[offset] = bytes;
}

}  // namespace kvkeep::client
