// Hold: one hold of the store's lock. How much work it may do, and which tasks it leaves to be run
// when the lock is let go.
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
  // Most holds leave no more than kInPlace tasks, which cost no memory of their own. The others are
  // in a deque: it asks malloc for small blocks only. A large one may have malloc tidy up first,
  // for milliseconds, under the lock.
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
    // In the order of their coming.
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

  // Counts work done in this hold. Spent: the hold should end at the next place where the state is
  // whole.
  void Count(uint32_t units) { work_ += units; }
  bool Spent() const { return work_ >= max_work_; }
  uint64_t max_work() const { return max_work_; }

  // Runs after the lock was let go of, on the same thread, in this order.
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
  // None: there are no tasks. Moves no task.
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
