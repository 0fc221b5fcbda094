// RunTasks: runs what a Hold left to do, as Section does after it has released the lock.
#pragma once

#include <optional>
#include <utility>

#include "tiers/store/hold.h"

namespace kvkeep::store_internal {

// Returns false if there was nothing.
inline bool RunTasks(Hold& hold) {
  std::optional<Hold::Tasks> tasks = hold.TakeTasks();
  if (!tasks.has_value()) return false;
  std::move(*tasks).Run();
  return true;
}

}  // namespace kvkeep::store_internal
