// Breaker: decides whether an endpoint is asked at all.
//
// Closed, it lets all through. It opens after some connection failures in a row, when half of the
// answers of the last seconds are failures, or at once for an error that somebody has to mend.
// Open, it lets nothing through until its pause is over; then a single request, the probe, whose
// answer closes it or opens it for twice as long. It always comes back by itself: a probe that ends
// without an answer gives its turn to the next one.
//
// Answers to requests sent before it last opened or closed say nothing of now, and are not counted:
// hence tickets. A plain value: time comes from the caller. Thread-compatible.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "tiers/base/clock.h"
#include "tiers/base/random.h"

namespace kvkeep {

struct BreakerOptions {
  uint32_t connection_failures = 3;  // in a row
  uint32_t least_answers = 10;       // in the window, before their share counts
  uint32_t failed_percent = 50;
  std::chrono::seconds first_pause{5}, longest_pause{300};  // doubling, up to a quarter shorter
  std::chrono::seconds misconfigured_pause{60};
};

class Breaker {
 public:
  enum class State : uint8_t { kClosed, kOpen, kProbing };
  enum class Failure : uint8_t { kConnection, kAnswer };
  class Ticket {
    friend class Breaker;
    uint64_t epoch_ = 0;
  };

  // `random` outlives this.
  Breaker(const BreakerOptions& options, RandomSource* random);

  // Returns a ticket if a request may be sent. The caller tells its end once, by one of the four
  // calls below.
  std::optional<Ticket> Admit(MonotonicTime now);
  void Serves(Ticket ticket, MonotonicTime now);
  void Fails(Ticket ticket, Failure failure, MonotonicTime now);
  // Tells that no request will be taken before somebody changes something.
  void Misconfigured(Ticket ticket, MonotonicTime now);
  // Tells that a request ended without saying anything of the endpoint: cancelled, or never sent.
  void Abandons(Ticket ticket, MonotonicTime now);

  State state() const { return state_; }
  bool misconfigured() const { return state_ != State::kClosed && misconfigured_; }
  // Returns the time until the endpoint may be asked again; zero when it may be now.
  std::chrono::nanoseconds RetryIn(MonotonicTime now) const;
  uint64_t times_opened() const { return times_opened_; }

 private:
  static constexpr size_t kSeconds = 5;  // of answers that are remembered
  struct Second {
    int64_t number = -1;
    uint32_t answers = 0, failures = 0;
  };

  // Returns whether the ticket was given since the breaker last opened or closed.
  bool Counts(Ticket ticket) const;
  void Count(MonotonicTime now, bool failed);
  bool TooMany(MonotonicTime now) const;
  void Open(MonotonicTime now, bool misconfigured);
  void Close();

  const BreakerOptions options_;
  RandomSource& random_;
  State state_ = State::kClosed;
  bool misconfigured_ = false;
  uint64_t epoch_ = 1;
  MonotonicTime retry_at_{0};
  std::chrono::nanoseconds pause_{0};  // the last one, whole
  uint32_t connection_failures_ = 0;
  std::array<Second, kSeconds> seconds_;
  uint64_t times_opened_ = 0;
};

}  // namespace kvkeep
