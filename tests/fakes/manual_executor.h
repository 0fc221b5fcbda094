// ManualExecutor: an Executor whose tasks run only on request, on the caller's thread, in the order
// that the test chooses. The heart of every deterministic test. Not thread-safe.
#pragma once

#include <deque>
#include <map>

#include "tiers/base/executor.h"

namespace kvkeep {

class ManualExecutor final : public Executor {
 public:
  void Post(Task task) override { tasks_.push_back(std::move(task)); }
  void PostNear(std::optional<int> node, Task task) override {
    if (node.has_value()) ++near_[*node];
    Post(std::move(task));
  }
  // Returns how many tasks were posted near each node.
  const std::map<int, int>& near() const { return near_; }

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
  std::map<int, int> near_;
};

}  // namespace kvkeep
