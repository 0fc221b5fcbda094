#include "tiers/store/doubtful_records.h"

#include <algorithm>
#include <functional>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

DoubtfulRecords::DoubtfulRecords(std::vector<CommitSequence> doubtful,
                                 std::vector<CommitSequence> certain)
    : size_(doubtful.size()) {
  std::sort(doubtful.begin(), doubtful.end());
  std::sort(certain.begin(), certain.end());
  const size_t each = (doubtful.size() + kMostGroups - 1) / kMostGroups;
  auto next = certain.begin();
  for (const CommitSequence sequence : doubtful) {
    const auto end = std::lower_bound(next, certain.end(), sequence);
    if (next != end) {
      groups_.push_back({*next, *(end - 1), static_cast<uint64_t>(end - next), 0});
    }
    if (next != end || groups_.empty() || groups_.back().records == each) {
      groups_.push_back({sequence, sequence, 0, 0});
    }
    next = end;
    Group& group = groups_.back();
    group.last = sequence;
    ++group.records;
    ++group.left;
  }
}

void DoubtfulRecords::Remove(CommitSequence sequence) {
  const auto group =
      std::lower_bound(groups_.begin(), groups_.end(), sequence,
                       [](const Group& one, CommitSequence value) { return one.last < value; });
  KVKEEP_CHECK(group != groups_.end() && group->first <= sequence && group->left > 0);
  KVKEEP_CHECK(size_ > 0);
  --group->left;
  --size_;
}

Doubtful DoubtfulRecords::Ranges() const {
  Doubtful doubtful;
  std::vector<uint64_t> gaps;  // how many records lie before each range but the first
  uint64_t gap = 0;
  for (const Group& group : groups_) {
    if (group.left == 0) {
      gap += group.records;
      continue;
    }
    if (doubtful.ranges.empty() || gap > 0) {
      if (!doubtful.ranges.empty()) gaps.push_back(gap);
      doubtful.ranges.push_back({CommitSequence(group.first.value() - 1), group.last});
    }
    doubtful.ranges.back().to = group.last;
    gap = 0;
  }
  if (doubtful.ranges.size() <= Doubtful::kMostRanges) return doubtful;
  // The largest gaps stay, and the first ones of equal gaps.
  constexpr size_t kMostGaps = Doubtful::kMostRanges - 1;
  std::vector<uint64_t> sizes = gaps;
  std::nth_element(sizes.begin(), sizes.begin() + (kMostGaps - 1), sizes.end(), std::greater<>());
  const uint64_t least = sizes[kMostGaps - 1];
  const auto larger = std::count_if(gaps.begin(), gaps.end(), [least](uint64_t one) {
    return one > least;
  });
  size_t equal_left = kMostGaps - static_cast<size_t>(larger);
  Doubtful joined{{doubtful.ranges[0]}};
  for (size_t i = 0; i < gaps.size(); ++i) {
    const bool stays = gaps[i] > least || (gaps[i] == least && equal_left > 0);
    if (gaps[i] == least && equal_left > 0) --equal_left;
    if (stays) {
      joined.ranges.push_back(doubtful.ranges[i + 1]);
    } else {
      joined.ranges.back().to = doubtful.ranges[i + 1].to;
    }
  }
  return joined;
}

}  // namespace kvkeep::store_internal
