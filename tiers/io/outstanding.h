// Outstanding: counts the unfinished operations of one device, and waits for the last. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class Outstanding {
 public:
  void Add() {
    MutexLock lock(&mu_);
    ++count_;
  }
  void Done() {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(count_ > 0);
    if (--count_ == 0) none_.NotifyAll();
  }
  void WaitNone() {
    MutexLock lock(&mu_);
    while (count_ > 0) none_.Wait(&mu_);
  }
  // Returns false if some are unfinished after `timeout` without a change.
  bool WaitNoneFor(std::chrono::nanoseconds timeout) {
    MutexLock lock(&mu_);
    while (count_ > 0) {
      if (!none_.WaitFor(&mu_, timeout)) return count_ == 0;
    }
    return true;
  }
  uint64_t count() {
    MutexLock lock(&mu_);
    return count_;
  }

 private:
  Mutex mu_;
  CondVar none_;
  uint64_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep
