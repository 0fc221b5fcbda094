// HeldExecutor: keeps the tasks of another executor back until they are let go.
//
// Thread-safe.
#pragma once

#include <utility>
#include <vector>

#include "tiers/base/executor.h"

namespace kvkeep {

class HeldExecutor final : public Executor {
 public:
  // Borrowed.
  explicit HeldExecutor(Executor* executor) : executor_(*executor) {}

  void Post(Task task) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (held_) return tasks_.push_back(std::move(task));
    executor_.Post(std::move(task));
  }
  // Posts the tasks that were kept; from now on tasks are posted as they come.
  void LetGo() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    held_ = false;
    for (Task& task : tasks_) executor_.Post(std::move(task));
    tasks_.clear();
  }

 private:
  Executor& executor_;
  Mutex mu_;
  bool held_ ABSL_GUARDED_BY(mu_) = true;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
