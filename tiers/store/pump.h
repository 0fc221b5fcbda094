// Pump: starts what may start now of one tier, as far as one hold of the lock may go, and again in
// later holds until nothing is left. One run at a time.
//
// No wake-up is lost: a run that is asked for while one is under way comes after it. The store's
// lock protects it; the tier owns it, and stays while it runs.
#pragma once

#include <functional>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

class Pump {
 public:
  // What a run does. REQUIRES: nobody has asked for one.
  void SetWork(std::function<void()> work) {
    KVKEEP_CHECK(!running_);
    work_ = std::move(work);
  }
  // Asks for a run. Returns whether nobody is there to make it: then the caller has RunOnce called
  // until that returns false, outside of this hold.
  bool Ask() {
    asked_ = true;
    return !std::exchange(running_, true);
  }
  // Makes a run if one was asked for, and returns whether it did. Else the pump stands still.
  bool RunOnce() {
    KVKEEP_CHECK(running_);
    running_ = std::exchange(asked_, false);
    if (running_) work_();
    return running_;
  }
  bool asked() const { return asked_; }
  bool running() const { return running_; }

 private:
  std::function<void()> work_;
  bool asked_ = false, running_ = false;
};

}  // namespace kvkeep::store_internal
