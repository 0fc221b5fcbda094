// LoopWatch: checks whether the daemon's threads still run their tasks.
//
// Each loop has one probe under way at most: a task that notes that it ran. A busy loop's lag is
// the time that a probe waits there; the lag of a stuck loop keeps growing. Waiting for a disk is
// not a fault: an index's threads are not watched, and the thread of a device's ring is marked as
// one that may wait for a disk.
//
// Thread-safe. A probe may run, or be destroyed unrun, after this is gone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class LoopWatch {
 public:
  enum class Waits { kForNobody, kForDisk };
  struct Lag {
    std::string loop;
    Waits waits;
    MonotonicTime lag;  // of the probe under way, or of the last one: whichever is more
  };

  // Borrowed; must outlive this.
  explicit LoopWatch(const Clock* clock) : clock_(clock) {}

  // `loop` is borrowed until ForgetAll has returned.
  // Loops may have the same name.
  void Watch(std::string name, Executor* loop, Waits waits = Waits::kForNobody);
  void ForgetAll();

  // Sends a probe to each loop that has answered the last one. To be called now and then.
  void Poll();
  std::vector<Lag> lags() const;

 private:
  // Shared with the probe.
  struct Probe {
    Mutex mu;
    bool under_way ABSL_GUARDED_BY(mu) = false;
    MonotonicTime sent ABSL_GUARDED_BY(mu){0};
    MonotonicTime took ABSL_GUARDED_BY(mu){0};
  };
  struct Loop {
    std::string name;
    Executor* executor = nullptr;
    Waits waits;
    std::shared_ptr<Probe> probe;
  };

  const Clock* const clock_;
  mutable Mutex mu_;
  std::vector<Loop> loops_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
