// SerialLoop: lets one thread at a time run an object's step function, without a lock held over it.
//
// Events come on any thread (gRPC reactions, the store's callbacks, at times inside a call that the
// step itself makes). Each records what happened, then calls Run. If no thread runs the step, Run
// runs it until no further event has come; otherwise it returns at once. State that only the step
// touches needs no lock: runs of the step follow one another, and each sees all of the one before.
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
