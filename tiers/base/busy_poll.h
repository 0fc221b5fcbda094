// BusyPoll: decides whether it pays to poll for a while before going to sleep.
//
// Waking a thread on a core that has gone idle takes 10 to 50 us, more than a whole small request.
// Polling instead costs a core meanwhile. So polling begins once a wait was short enough for it,
// and goes on while it finds something. After polling in vain the next waits, more of them each
// time, sleep at once. A thread that has waited for long without an event sleeps without polling.
//
//     const bool poll = busy.ShouldPoll();          one thread
//     ... look for at most busy.limit(), then sleep
//     busy.Waited(poll, found by looking, how long in all);
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace kvkeep {

class BusyPoll {
 public:
  using Duration = std::chrono::nanoseconds;
  static constexpr uint32_t kMostDoublings = 10;

  // Zero: never looks.
  explicit BusyPoll(Duration limit) : limit_(limit) {}

  Duration limit() const { return limit_; }
  bool ShouldPoll() const { return sleeps_ == 0; }
  void Waited(bool polled, bool found, Duration waited) {
    if (polled && found) {
      in_vain_ = 0;
    } else if (polled) {
      in_vain_ = std::min(in_vain_ + 1, kMostDoublings);
      sleeps_ = 1u << in_vain_;
    } else if (sleeps_ > 1) {
      --sleeps_;
    } else {
      sleeps_ = waited <= limit_ ? 0 : 1;  // the last one tells what the next will be like
    }
  }

 private:
  const Duration limit_;
  uint32_t in_vain_ = 0;  // times in a row
  uint32_t sleeps_ = 1;   // waits to come that are slept through
};

}  // namespace kvkeep
