#include "tiers/store/read_speed.h"

#include <algorithm>
#include <cmath>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

double ReadSpeed::Measured::a_byte() const {
  // If a device has brought nothing for long, the weighted bytes are hardly one.
  return nanoseconds > 0 ? nanoseconds / std::max(bytes, 1.0) : kFirstGuess;
}

ReadSpeed::Measured ReadSpeed::At(MonotonicTime now) const {
  // A device that was fast does not become slow while it rests.
  if (under_way_ > 0 || now <= ended_ || measured_.a_byte() <= kFirstGuess) return measured_;
  const double left = std::exp2(-std::chrono::duration<double>(now - ended_) / kHalfLife);
  const double a_byte =
      kFirstGuess + (std::min(measured_.a_byte(), kSlowestIdle) - kFirstGuess) * left;
  const double bytes = std::max(measured_.bytes * left, 1.0);
  return {.bytes = bytes, .nanoseconds = a_byte * bytes};
}

void ReadSpeed::OnStart(uint64_t bytes, MonotonicTime now) {
  if (under_way_ == 0) {
    measured_ = At(now);
    spell_began_ = now;
    came_ = 0;
  }
  under_way_ += bytes;
}

void ReadSpeed::OnEnd(uint64_t bytes, bool good, MonotonicTime now) {
  KVKEEP_CHECK(bytes <= under_way_);
  under_way_ -= bytes;
  ended_ = now;
  if (good) came_ += bytes;
  const MonotonicTime took = now - spell_began_;
  if (under_way_ > 0 && took < kSpell) return;
  measured_ = {.bytes = measured_.bytes / 2 + static_cast<double>(came_),
               .nanoseconds = measured_.nanoseconds / 2 + static_cast<double>(took.count())};
  spell_began_ = now;
  came_ = 0;
}

std::chrono::nanoseconds ReadSpeed::TimeFor(uint64_t bytes, MonotonicTime now,
                                            uint64_t later_bytes) const {
  const uint64_t all = under_way_ - std::min(under_way_, later_bytes) + bytes;
  const double longest = std::chrono::nanoseconds(kLongest).count();
  return std::chrono::nanoseconds(
      static_cast<int64_t>(std::min(longest, At(now).a_byte() * static_cast<double>(all))));
}

}  // namespace kvkeep::store_internal
