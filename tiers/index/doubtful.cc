#include "tiers/index/doubtful.h"

#include <algorithm>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

constexpr char kOneRange = 1, kRanges = 2;  // versions
constexpr size_t kRangeBytes = 2 * sizeof(uint64_t);

// Returns whether the ranges are ordered as Doubtful::ranges requires.
bool Ascend(const std::vector<Doubtful::Range>& ranges) {
  CommitSequence end{0};
  for (const Doubtful::Range& range : ranges) {
    if (range.after < end || range.to <= range.after) return false;
    end = range.to;
  }
  return true;
}

}  // namespace

Doubtful Doubtful::All() { return {{{CommitSequence(0), CommitSequence(UINT64_MAX)}}}; }

bool Doubtful::contains(CommitSequence sequence) const {
  const auto range =
      std::lower_bound(ranges.begin(), ranges.end(), sequence,
                       [](const Range& one, CommitSequence value) { return one.to < value; });
  return range != ranges.end() && range->after < sequence;
}

std::string EncodeDoubtful(const Doubtful& doubtful) {
  KVKEEP_CHECK(doubtful.ranges.size() <= Doubtful::kMostRanges && Ascend(doubtful.ranges));
  std::string value(1 + doubtful.ranges.size() * kRangeBytes, kRanges);
  auto* at = reinterpret_cast<std::byte*>(value.data() + 1);
  for (const Doubtful::Range& range : doubtful.ranges) {
    StoreAt<uint64_t>(at, range.after.value());
    StoreAt<uint64_t>(at + sizeof(uint64_t), range.to.value());
    at += kRangeBytes;
  }
  return value;
}

Doubtful DecodeDoubtful(const std::optional<std::string>& value) {
  if (!value.has_value()) return {};
  if (value->size() % kRangeBytes != 1) return Doubtful::All();
  const size_t count = value->size() / kRangeBytes;
  const bool one = (*value)[0] == kOneRange && count == 1;
  if (!one && ((*value)[0] != kRanges || count > Doubtful::kMostRanges)) return Doubtful::All();
  Doubtful doubtful;
  const auto* at = reinterpret_cast<const std::byte*>(value->data() + 1);
  for (size_t i = 0; i < count; ++i, at += kRangeBytes) {
    doubtful.ranges.push_back({CommitSequence(LoadAt<uint64_t>(at)),
                               CommitSequence(LoadAt<uint64_t>(at + sizeof(uint64_t)))});
  }
  // The one range of version 1 may be empty.
  if (one && doubtful.ranges[0].to <= doubtful.ranges[0].after) return {};
  return Ascend(doubtful.ranges) ? doubtful : Doubtful::All();
}

}  // namespace kvkeep
