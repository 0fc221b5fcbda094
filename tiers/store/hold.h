// Hold: one hold of the store's lock. It counts the work of the hold, and keeps the tasks that run
// once the lock is unlocked.
//
// Chunks owns the one Hold, and each Section begins it anew. Device I/O, executor tasks and
// callbacks of callers never run under the lock: they go into Later. The store's lock protects it.
#pragma once

#include <absl/container/inlined_vector.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/work.h"

namespace kvkeep::store_internal {

class Hold {
 public:
  using Task = absl::AnyInvocable<void() &&>;
  // Most holds leave at most kInPlace tasks, which need no memory of their own. Further tasks go
  // into a deque, which asks malloc for small blocks only. A request for a large block may make
  // malloc tidy up first, for milliseconds, under the lock.
  class Tasks {
   public:
    void Add(Task task) {
      if (first_.size() < kInPlace) {
        first_.push_back(std::move(task));
      } else {
        if (more_ == nullptr) more_ = std::make_unique<std::deque<Task>>();
        more_->push_back(std::move(task));
      }
    }
    bool empty() const { return first_.empty(); }
    // Runs the tasks in the order in which they were added.
    void Run() && {
      for (Task& task : first_) std::move(task)();
      if (more_ == nullptr) return;
      for (Task& task : *more_) std::move(task)();
    }

   private:
    static constexpr size_t kInPlace = 4;
    absl::InlinedVector<Task, kInPlace> first_;
    std::unique_ptr<std::deque<Task>> more_;  // null: there are no more
  };

  // `max_work`: in units of work.h.
  explicit Hold(uint64_t max_work) : max_work_(max_work) {}

  // Counts work done in this hold. If Spent() is true, the hold should end at the next place where
  // the state is consistent.
  void Count(uint32_t units) { work_ += units; }
  bool Spent() const { return work_ >= max_work_; }
  uint64_t max_work() const { return max_work_; }

  // Has the task run once the lock is unlocked, on the same thread. Tasks run in the order of these
  // calls.
  void Later(Task task) { tasks_.Add(std::move(task)); }
  template <typename Callback, typename Answer>
  void CallLater(Callback callback, Answer answer) {
    Later([callback = std::move(callback), answer = std::move(answer)]() mutable {
      std::move(callback)(std::move(answer));
    });
  }

  // ---- for Section
  void Begin() {
    KVKEEP_CHECK(!has_tasks());
    work_ = 0;
  }
  // Returns the tasks; none: there are none, and nothing is moved.
  std::optional<Tasks> TakeTasks() {
    if (tasks_.empty()) return std::nullopt;
    return std::exchange(tasks_, Tasks());
  }
  bool has_tasks() const { return !tasks_.empty(); }

 private:
  const uint64_t max_work_;
  uint64_t work_ = 0;
  Tasks tasks_;
};

}  // namespace kvkeep::store_internal
