// SerialLoop: lets one thread at a time run an object's step function, without a lock held over it.
//
// Events come on any thread (gRPC reactions, the store's callbacks, at times inside a call that the
// step itself makes). Each records what happened, then calls Run. Whoever finds nobody running runs
// the step until no event came meanwhile; the others return at once. So what only the step touches
// needs no lock: its runs follow one another, each seeing all of the one before.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvkeep {

class SerialLoop {
 public:
  template <typename Step>
  void Run(Step&& step) {
    if (wakes_.fetch_add(1, std::memory_order_acq_rel) != 0) return;
    uint64_t seen = 0;
    do {
      seen = wakes_.load(std::memory_order_acquire);
      step();
    } while (wakes_.fetch_sub(seen, std::memory_order_acq_rel) != seen);
  }

 private:
  std::atomic<uint64_t> wakes_{0};  // since the running step last looked
};

}  // namespace kvkeep
