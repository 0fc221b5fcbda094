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
#include <functional>
#include <optional>
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
  // The same for a task that works on memory of a NUMA node: an executor that has threads there
  // prefers them. None: the node is not known, or there is nothing to choose.
  virtual void PostNear(std::optional<int> /*node*/, Task task) { Post(std::move(task)); }
};

// Waits until a task that is posted now, near the node, has run. With one thread, all tasks posted
// before have then run.
void AwaitTurn(Executor& executor, std::optional<int> node = std::nullopt);

// Tasks of one class begin in the order posted. What is posted to the pool itself is work that
// somebody waits for. Work for which nobody waits (`background`) begins when none of the other
// waits. So that it goes on under any load, one in kShare tasks that begin is of it, while there is
// some.
//
// The threads may be divided among NUMA nodes. Then a task near a node wakes a thread of that node
// if one waits, else any that waits, and tasks of one class begin in order only if they are near
// one node. A thread that is free takes the oldest task near its own node or near none. If there is
// none, it takes one near another node, unless a thread there was woken for it: so no thread waits
// while a task does. The class comes before the node.
class ThreadPool final : public Executor {
 public:
  static constexpr int kShare = 8;

  // `name` shows in `top -H` (at most 15 characters are kept).
  ThreadPool(std::string name, int threads);
  // Divides the threads evenly among the nodes, which are distinct. Each thread calls `begin` with
  // its node before anything else. With fewer threads than nodes the last ones have none, and what
  // is near those is near none.
  ThreadPool(std::string name, int threads, const std::vector<int>& nodes,
             std::function<void(int node)> begin);
  // Runs what is queued, then joins. Nothing may be posted from outside by then.
  ~ThreadPool() override;

  void Post(Task task) override { PostTo(kUsual, std::nullopt, std::move(task)); }
  void PostNear(std::optional<int> node, Task task) override {
    PostTo(kUsual, node, std::move(task));
  }
  Executor* background() { return &background_; }
  // For signs of life, which begin before all else that waits: they tell whether a thread is left
  // that runs tasks, and not how many wait. Few and short ones.
  Executor* urgent() { return &urgent_; }
  size_t queued() const;
  // Returns how many threads wait for a task.
  size_t idle() const;

 private:
  enum Class : size_t { kUrgent, kUsual, kBackground, kClasses };
  class ClassExecutor final : public Executor {
   public:
    ClassExecutor(ThreadPool* pool, Class its_class) : pool_(*pool), class_(its_class) {}
    void Post(Task task) override { pool_.PostTo(class_, std::nullopt, std::move(task)); }
    void PostNear(std::optional<int> node, Task task) override {
      pool_.PostTo(class_, node, std::move(task));
    }

   private:
    ThreadPool& pool_;
    const Class class_;
  };
  struct Thread {
    size_t lane = 0;     // constant
    bool woken = false;  // guarded by mu_
    CondVar wake;
    std::thread thread;  // constant
  };
  struct Queued {
    uint64_t number = 0;  // in the order posted
    Task task;
  };
  // The tasks near one node, and its threads. The first lane has the tasks near none, and all
  // threads of a pool that is not divided.
  struct Lane {
    std::optional<int> node;
    std::array<std::deque<Queued>, kClasses> queues;
    std::vector<Thread*> waiting;
    size_t woken = 0;  // threads that were woken and have not looked for a task yet

    size_t queued() const;
  };

  void PostTo(Class its_class, std::optional<int> node, Task task);
  Lane& LaneOf(std::optional<int> node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Picks the thread to be woken for a task in the lane; null: none waits.
  Thread* PickWaiting(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the lane whose first task of this class a thread of `home` takes; null: it takes none.
  Lane* Find(Class its_class, const Lane& home) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns null if there is nothing that a thread of `home` takes.
  Task TakeNext(const Lane& home) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(Thread& self);

  mutable Mutex mu_;
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mu_);  // as many as at the start
  uint64_t posted_ ABSL_GUARDED_BY(mu_) = 0;
  int passed_over_ ABSL_GUARDED_BY(mu_) = 0;  // how often in a row, while some waited: background
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  ClassExecutor background_{this, kBackground}, urgent_{this, kUrgent};
  std::deque<Thread> threads_;  // as many as at the start
};

}  // namespace kvkeep
