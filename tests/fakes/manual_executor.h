// ManualExecutor: an Executor whose tasks run only on request, on the caller's thread, in the order
// that the test chooses. The heart of every deterministic test. Not thread-safe.
#pragma once

#include <deque>

#include "tiers/base/executor.h"

namespace kvkeep {

class ManualExecutor final : public Executor {
 public:
  void Post(Task task) override { tasks_.push_back(std::move(task)); }

  bool idle() const { return tasks_.empty(); }
  size_t size() const { return tasks_.size(); }
  // Runs one queued task (default: the oldest). REQUIRES: index < size().
  void RunOne(size_t index = 0);
  // Runs until nothing is queued, tasks posted meanwhile included. Returns how many ran.
  size_t RunAll();
  // Destroys queued tasks without running them, like a killed process.
  void Drop() { tasks_.clear(); }

 private:
  std::deque<Task> tasks_;
};

}  // namespace kvkeep
