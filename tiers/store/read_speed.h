// ReadSpeed: estimates how long one device will take for reads, from how long it took for earlier
// ones.
//
// A read counts from the call that wants it until its bytes are readable. This covers its time in
// the device's queue, on the device, and in verification. While a read is under way, the device is
// busy. Busy time is divided into spells: a spell ends when no read is left, or after kSpell. The
// speed is the bytes of the last spells over their time. Each spell weighs half as much as the one
// after it. Before the first spell ends, the speed is kFirstGuess.
//
// A speed below that is forgotten while nothing is read, by half in each kHalfLife: callers that
// are told that reads take too long ask for none, so no read would ever correct a bad measurement.
//
// Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "tiers/base/clock.h"

namespace kvkeep::store_internal {

class ReadSpeed {
 public:
  static constexpr double kFirstGuess = 1.0;  // nanoseconds a byte
  static constexpr MonotonicTime kSpell = std::chrono::milliseconds(100);
  static constexpr MonotonicTime kHalfLife = std::chrono::seconds(10);
  static constexpr double kSlowestIdle = 1000.0;  // nanoseconds a byte, believed of an idle device
  static constexpr MonotonicTime kLongest = std::chrono::hours(1);  // that TimeFor returns

  void OnStart(uint64_t bytes, MonotonicTime now);
  // REQUIRES: the read was started. A failed read counts as time in which nothing came.
  void OnEnd(uint64_t bytes, bool good, MonotonicTime now);

  // Returns the time until `bytes` more bytes are readable, behind all bytes that are under way but
  // `later_bytes` of them.
  std::chrono::nanoseconds TimeFor(uint64_t bytes, MonotonicTime now,
                                   uint64_t later_bytes = 0) const;
  uint64_t under_way_bytes() const { return under_way_; }

 private:
  // Bytes of the spells that have ended and their time, weighted.
  struct Measured {
    double bytes = 0, nanoseconds = 0;

    double a_byte() const;  // nanoseconds
  };
  // Returns what is left of it after the time in which nothing was read.
  Measured At(MonotonicTime now) const;

  Measured measured_;
  MonotonicTime ended_{0};  // the last read
  uint64_t under_way_ = 0;
  uint64_t came_ = 0;  // since the spell began
  MonotonicTime spell_began_{0};
};

}  // namespace kvkeep::store_internal
