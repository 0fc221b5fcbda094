// ReadSpeed: estimates how long one device will take for reads, from how long it took for earlier
// ones.
//
// A read counts from the call that wants it until its bytes are readable. This covers its time in
// the device's queue, on the device, and in verification. While a read is under way, the device is
// busy. Busy time is divided into spells: a spell ends when no read is left, or after kSpell. The
// speed is the bytes of the last spells over their time. Each spell weighs half as much as the one
// after it. Before the first spell ends, the speed is kFirstGuess. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "tiers/base/clock.h"

namespace kvkeep::store_internal {

class ReadSpeed {
 public:
  static constexpr double kFirstGuess = 1.0;  // nanoseconds a byte
  static constexpr MonotonicTime kSpell = std::chrono::milliseconds(100);
  static constexpr MonotonicTime kLongest = std::chrono::hours(1);  // that TimeFor returns

  void OnStart(uint64_t bytes, MonotonicTime now);
  // REQUIRES: the read was started. A failed read counts as time in which nothing came.
  void OnEnd(uint64_t bytes, bool good, MonotonicTime now);

  // Returns the time until `bytes` more bytes are readable, behind all bytes that are under way but
  // `later_bytes` of them.
  std::chrono::nanoseconds TimeFor(uint64_t bytes, uint64_t later_bytes = 0) const;
  uint64_t under_way_bytes() const { return under_way_; }

 private:
  double bytes_ = 0, nanoseconds_ = 0;  // of the spells that have ended, weighted
  uint64_t under_way_ = 0;
  uint64_t came_ = 0;  // since the spell began
  MonotonicTime spell_began_{0};
};

}  // namespace kvkeep::store_internal
