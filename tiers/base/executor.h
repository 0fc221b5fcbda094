// Executor: the seam to threads. Work is handed over as a closure and runs later, not inside Post.
//
//   ThreadPool pool("kvkeep-copy", 2);
//   pool.Post([from, to] { Copy(from, to); });   // returns at once
//
// ThreadPool runs it on its own threads. Tests use ManualExecutor (tests/fakes), which runs
// closures when told to.
#pragma once

#include <absl/functional/any_invocable.h>

#include <array>
#include <deque>
#include <string>
#include <thread>
#include <utility>
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

// Tasks of one class begin in the order posted. What is posted to the pool itself is work that
// somebody waits for. Work for which nobody waits (`background`) begins when none of the other
// waits. So that it goes on under any load, one in kShare tasks that begin is of it, while there is
// some.
class ThreadPool final : public Executor {
 public:
  static constexpr int kShare = 8;

  // `name` shows in `top -H` (at most 15 characters are kept).
  ThreadPool(std::string name, int threads);
  // Runs what is queued, then joins. Nothing may be posted from outside by then.
  ~ThreadPool() override;

  void Post(Task task) override { PostTo(kUsual, std::move(task)); }
  Executor* background() { return &background_; }
  // For signs of life, which begin before all else that waits: they tell whether a thread is left
  // that runs tasks, and not how many wait. Few and short ones.
  Executor* urgent() { return &urgent_; }
  size_t queued() const;

 private:
  enum Class : size_t { kUrgent, kUsual, kBackground, kClasses };
  class ClassExecutor final : public Executor {
   public:
    ClassExecutor(ThreadPool* pool, Class its_class) : pool_(*pool), class_(its_class) {}
    void Post(Task task) override { pool_.PostTo(class_, std::move(task)); }

   private:
    ThreadPool& pool_;
    const Class class_;
  };

  void PostTo(Class its_class, Task task);
  bool empty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // REQUIRES: !empty().
  Task TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();

  mutable Mutex mu_;
  CondVar work_or_stop_;
  std::array<std::deque<Task>, kClasses> queues_ ABSL_GUARDED_BY(mu_);
  int passed_over_ ABSL_GUARDED_BY(mu_) = 0;  // how often in a row, while some waited: background
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  ClassExecutor background_{this, kBackground}, urgent_{this, kUrgent};
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace kvkeep
