#include "tiers/store/read_speed.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

void ReadSpeed::OnStart(uint64_t bytes, MonotonicTime now) {
  if (under_way_ == 0) {
    spell_began_ = now;
    came_ = 0;
  }
  under_way_ += bytes;
}

void ReadSpeed::OnEnd(uint64_t bytes, bool good, MonotonicTime now) {
  KVKEEP_CHECK(bytes <= under_way_);
  under_way_ -= bytes;
  if (good) came_ += bytes;
  const MonotonicTime took = now - spell_began_;
  if (under_way_ > 0 && took < kSpell) return;
  bytes_ = bytes_ / 2 + static_cast<double>(came_);
  nanoseconds_ = nanoseconds_ / 2 + static_cast<double>(took.count());
  spell_began_ = now;
  came_ = 0;
}

std::chrono::nanoseconds ReadSpeed::TimeFor(uint64_t bytes, uint64_t later_bytes) const {
  const uint64_t all = under_way_ - std::min(under_way_, later_bytes) + bytes;
  // If a device has brought nothing for long, the weighted bytes are hardly one.
  const double a_byte = nanoseconds_ > 0 ? nanoseconds_ / std::max(bytes_, 1.0) : kFirstGuess;
  const double longest = std::chrono::nanoseconds(kLongest).count();
  return std::chrono::nanoseconds(
      static_cast<int64_t>(std::min(longest, a_byte * static_cast<double>(all))));
}

}  // namespace kvkeep::store_internal
