// ReadSpeed: how long one device will take for what is to be read from it, from how long it took.
//
// A read counts from the call that wants it until its bytes are readable: in the device's queue, on
// the device, being verified. While any is under way the device is busy. Busy time comes in spells
// (one ends when nothing is left, or after kSpell); the speed is the bytes of the last spells over
// their time, each weighing half as much with every one after it. Before the first it is
// kFirstGuess. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "tiers/base/clock.h"

namespace kvkeep::store_internal {

class ReadSpeed {
 public:
  static constexpr double kFirstGuess = 1.0;  // nanoseconds a byte
  static constexpr MonotonicTime kSpell = std::chrono::milliseconds(100);
  static constexpr MonotonicTime kLongest = std::chrono::hours(1);  // that TimeFor says

  void OnStart(uint64_t bytes, MonotonicTime now);
  // REQUIRES: it was started. Failed ones count as time in which nothing came.
  void OnEnd(uint64_t bytes, bool good, MonotonicTime now);

  // Until `bytes` more are readable, behind all that is under way but `later_bytes` of it.
  std::chrono::nanoseconds TimeFor(uint64_t bytes, uint64_t later_bytes = 0) const;
  uint64_t under_way_bytes() const { return under_way_; }

 private:
  double bytes_ = 0, nanoseconds_ = 0;  // of the spells that ended, as they weigh
  uint64_t under_way_ = 0;
  uint64_t came_ = 0;  // since the spell began
  MonotonicTime spell_began_{0};
};

}  // namespace kvkeep::store_internal
