// TokenBucket: limits a rate by debt. `per_second` tokens come in a second, saved up for a second
// at most unless said otherwise. A caller may go on while there is a token, and takes afterwards as
// many as it used. One use may be larger than the most that can be saved; the next one waits until
// the debt is paid off. So in any time span the tokens taken are at most those that came in it,
// those saved, and one use.
//
// A plain value: time comes from the caller. Integers only: nothing is lost or made by rounding,
// however often it is asked. Thread-compatible.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"

namespace kvkeep {

class TokenBucket {
 public:
  static constexpr uint64_t kMaxPerSecond = uint64_t{1} << 50;

  // 0: no limit. Full at the first question.
  explicit TokenBucket(uint64_t per_second = 0,
                       std::chrono::milliseconds burst = std::chrono::seconds(1))
      : per_second_(static_cast<int64_t>(per_second)),
        most_(MostOf(per_second_, burst)),
        level_(most_) {
    KVKEEP_CHECK(per_second <= kMaxPerSecond && burst.count() >= 0);
  }

  bool limited() const { return per_second_ > 0; }
  uint64_t per_second() const { return static_cast<uint64_t>(per_second_); }

  // Returns nullopt if there is a token, else the time until there is one, rounded up.
  std::optional<std::chrono::milliseconds> Wait(MonotonicTime now) {
    if (!limited()) return std::nullopt;
    Fill(now);
    if (level_ > 0) return std::nullopt;
    const int64_t missing = 1 - level_;
    // Subtracts the part of a token that is there; the rest may be below zero.
    const int64_t rest = (missing % per_second_) * 1000 - fraction_ / 1'000'000;
    const int64_t ms = missing / per_second_ * 1000 + (rest + per_second_ - 1) / per_second_;
    return std::chrono::milliseconds(std::max<int64_t>(1, ms));
  }

  // Returns the tokens that are there. Without a limit: kMost.
  uint64_t saved(MonotonicTime now) {
    if (!limited()) return uint64_t{kMost};
    Fill(now);
    return static_cast<uint64_t>(std::max<int64_t>(0, level_));
  }

  void Take(uint64_t tokens) {
    if (limited())
      level_ -= std::min(static_cast<int64_t>(std::min(tokens, uint64_t{kMost})), level_ + kMost);
  }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;
  static constexpr int64_t kMost = int64_t{1} << 52;  // that can be saved, and that can be owed

  static int64_t MostOf(int64_t per_second, std::chrono::milliseconds burst) {
    return std::max<int64_t>(1, Times(per_second, burst.count(), 1000));
  }

  // a * b / unit, at most kMost, for b below 2^52.
  static int64_t Times(int64_t a, int64_t b, int64_t unit) {
    const int64_t whole = b / unit;
    if (whole > 0 && a > kMost / whole) return kMost;
    // In two steps, so that no product is too large: b % unit < 10^9, a < 2^50.
    const int64_t part = b % unit;
    return std::min(kMost, a * whole + a / unit * part + a % unit * part / unit);
  }

  void Fill(MonotonicTime now) {
    if (!filled_at_.has_value()) filled_at_ = now;
    const int64_t passed = (now - *filled_at_).count();
    if (passed <= 0) return;
    filled_at_ = now;
    const int64_t seconds = passed / kSecond, rest = passed % kSecond;
    // Keeps the part of a token that has come, in billionths.
    fraction_ += per_second_ % kSecond * rest;
    const int64_t came = per_second_ / kSecond * rest + fraction_ / kSecond;
    fraction_ %= kSecond;
    const int64_t room = most_ - level_;
    if (seconds > 0 && per_second_ > room / seconds) {
      level_ = most_;
    } else {
      level_ += std::min(room, per_second_ * seconds + came);
    }
    KVKEEP_CHECK(level_ <= most_ && level_ >= -kMost);
    if (level_ == most_) fraction_ = 0;
  }

  int64_t per_second_;
  int64_t most_;
  int64_t level_;  // below zero: owed
  int64_t fraction_ = 0;
  std::optional<MonotonicTime> filled_at_;
};

}  // namespace kvkeep
