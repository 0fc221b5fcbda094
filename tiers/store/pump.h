// Pump: begins the work of one tier that may begin now (reads, writes, batches of its index), as
// much as one hold of the lock may, and goes on in later holds until none is left. One run at a
// time.
//
// No wake-up is lost: a run that is asked for while one is under way comes after it. The store's
// lock protects it. The tier owns it, and must live while it runs.
#pragma once

#include <functional>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

class Pump {
 public:
  // Sets the function that a run calls. REQUIRES: nobody has asked for a run.
  void SetWork(std::function<void()> work) {
    KVKEEP_CHECK(!running_);
    work_ = std::move(work);
  }
  // Asks for a run. Returns true if no caller is making runs now. Then this caller has RunOnce
  // called, outside of this hold, until it returns false.
  bool Ask() {
    asked_ = true;
    return !std::exchange(running_, true);
  }
  // Makes a run if one was asked for. Returns false if none was; then the pump stands still.
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
