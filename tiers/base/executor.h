// Executor: the seam to threads. Work is handed over as a closure and runs later, not inside Post.
//
//   ThreadPool pool("kvkeep-copy", 2);
//   pool.Post([from, to] { Copy(from, to); });   // returns at once
//
// ThreadPool runs it on its own threads, in the order posted when it has one thread. Tests use
// ManualExecutor (tests/fakes), which runs closures when told to.
#pragma once

#include <absl/functional/any_invocable.h>

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "tiers/base/mutex.h"

namespace kvkeep {

class Executor {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  virtual ~Executor() = default;
  // Thread-safe. The task runs exactly once, or is destroyed unrun when the executor stops first.
  virtual void Post(Task task) = 0;
};

// Waits until a task posted now has run. With one thread, all tasks posted before have then run.
void AwaitTurn(Executor& executor);

class ThreadPool final : public Executor {
 public:
  // `name` shows in `top -H` (at most 15 characters are kept).
  ThreadPool(std::string name, int threads);
  // Runs what is queued, then joins. Nothing may be posted from outside by then.
  ~ThreadPool() override;

  void Post(Task task) override;
  size_t queued() const;

 private:
  void Run();

  mutable Mutex mu_;
  CondVar work_or_stop_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace kvkeep
