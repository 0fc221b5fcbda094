#include "tiers/remote/prefix_search.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

PrefixSearch::PrefixSearch(size_t keys, const PrefixSearchOptions& options, bool tail)
    : options_(options), keys_(keys), wants_tail_(tail), absent_(keys) {
  KVKEEP_CHECK(options.max_questions > 0 && options.max_rounds > 0 && options.points > 0);
}

std::vector<size_t> PrefixSearch::NextRound() {
  KVKEEP_CHECK(told_ == questions_);
  if (rounds_ == options_.max_rounds || questions_ == options_.max_questions) return {};
  const size_t may_ask = options_.max_questions - questions_;
  std::vector<size_t> asked;
  if (leading_ == absent_) {
    const bool ends_there = std::find(there_.begin(), there_.end(), keys_ - 1) != there_.end();
    if (!wants_tail_ || is_tail_ || leading_ > 0 || !ends_there) return {};
    is_tail_ = true;
    asked = Tail(may_ask);
    if (asked.empty()) return {};
  } else if (rounds_ == 0 && options_.first_alone && !wants_tail_) {
    asked = {0};
  } else if (!looked_at_ends_ && 2 * options_.points < absent_ - leading_) {
    asked = BothEnds();
    if (asked.size() > may_ask) asked.resize(may_ask);
  } else {
    // Asks all that the limit allows in the last round, or for a short run; else some.
    const bool all = rounds_ + 1 == options_.max_rounds || !looked_at_ends_;
    asked = Spread(all ? may_ask : std::min<size_t>(may_ask, options_.points));
  }
  looked_at_ends_ = looked_at_ends_ || !(rounds_ == 0 && options_.first_alone && !wants_tail_);
  asked_.insert(asked_.end(), asked.begin(), asked.end());
  questions_ += static_cast<uint32_t>(asked.size());
  ++rounds_;
  KVKEEP_CHECK(!asked.empty() && questions_ <= options_.max_questions);
  KVKEEP_CHECK(asked.back() < keys_ && asked.front() <= asked.back());
  KVKEEP_CHECK(leading_ <= absent_);
  return asked;
}

void PrefixSearch::Tell(size_t position, bool present) {
  KVKEEP_CHECK(position < keys_ && told_ < questions_);
  ++told_;
  if (present) {
    there_.push_back(position);
  } else {
    absent_ = std::min(absent_, position);
  }
  // Keys behind a hole are no part of the prefix.
  leading_ = 0;
  for (const size_t there : there_) {
    if (there < absent_) leading_ = std::max(leading_, there + 1);
  }
  KVKEEP_CHECK(leading_ <= absent_);
}

// Returns, of the unknown positions, both ends and those 1, 2, 4, ... away from them.
std::vector<size_t> PrefixSearch::BothEnds() const {
  KVKEEP_CHECK(leading_ < absent_);
  const size_t first = leading_, last = absent_ - 1;
  std::vector<size_t> ends = {first, last};
  for (size_t step = 1; step <= (last - first + 1) / 2; step *= 2) {
    ends.push_back(first + step);
    ends.push_back(last - step);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

// Returns at most `most` of the unknown positions, evenly spread; all if there are no more.
std::vector<size_t> PrefixSearch::Spread(size_t most) const {
  KVKEEP_CHECK(leading_ < absent_ && most > 0);
  const size_t unknown = absent_ - leading_;
  std::vector<size_t> points;
  if (unknown <= most) {
    for (size_t at = leading_; at < absent_; ++at) points.push_back(at);
    return points;
  }
  for (size_t i = 0; i < most; ++i) {
    points.push_back(leading_ + (i + 1) * unknown / (most + 1));
  }
  return points;
}

// Returns the last positions that were not asked for yet, rising.
std::vector<size_t> PrefixSearch::Tail(size_t most) const {
  std::vector<size_t> last;
  for (size_t at = keys_; at > 0 && last.size() < most; --at) {
    if (std::find(asked_.begin(), asked_.end(), at - 1) == asked_.end()) last.push_back(at - 1);
  }
  std::reverse(last.begin(), last.end());
  return last;
}

}  // namespace kvkeep
