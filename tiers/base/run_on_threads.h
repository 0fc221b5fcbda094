// RunOnThreads: shares out work that has to be over before the caller goes on.
#pragma once

#include <absl/functional/function_ref.h>

#include <string>

namespace kvkeep {

// Runs `work` once on each of so many threads, the caller's among them, and returns when all have
// ended. `work` takes its part from something that all share. `threads` below 1 counts as 1; then
// no thread is started. `name` shows in `top -H`, as ThreadPool's.
void RunOnThreads(const std::string& name, int threads, absl::FunctionRef<void()> work);

}  // namespace kvkeep
