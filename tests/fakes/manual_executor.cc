#include "tests/fakes/manual_executor.h"

#include "tiers/base/check.h"

namespace kvkeep {

void ManualExecutor::RunOne(size_t index) {
  KVKEEP_CHECK(index < tasks_.size());
  Task task = std::move(tasks_[index]);
  tasks_.erase(tasks_.begin() + static_cast<ptrdiff_t>(index));
  std::move(task)();
}

size_t ManualExecutor::RunAll() {
  size_t ran = 0;
  while (!tasks_.empty()) {
    RunOne();
    ++ran;
  }
  return ran;
}

}  // namespace kvkeep
