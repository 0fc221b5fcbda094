// EventLoop: epoll and a queue of tasks, for a thread with many sockets.
//
// Post is thread-safe. All else is for the one thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "tiers/base/busy_poll.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class EventLoop final : public Executor {
 public:
  // ResourceExhausted: no descriptor is left. `busy_poll`: how long the thread may look for events
  // before it sleeps (busy_poll.h).
  static absl::StatusOr<std::shared_ptr<EventLoop>> Create(BusyPoll::Duration busy_poll);

  // All tasks posted before the thread looks share one wake-up.
  void Post(Task task) override;

  // `events`: EPOLLIN, EPOLLOUT or 0 (a hang-up is reported in any case), level-triggered. `key` is
  // not 0.
  absl::Status Watch(int fd, uint64_t key, uint32_t events);
  void Change(int fd, uint64_t key, uint32_t events);
  void Forget(int fd);

  // Waits for at most `timeout` (negative: for ever), calls `on_event` for what happened, then runs
  // the tasks posted by then.
  using OnEvent = std::function<void(uint64_t key, uint32_t events)>;
  void RunOnce(std::chrono::milliseconds timeout, const OnEvent& on_event);
  // Destroys the tasks that are left, and from now on those that are posted.
  void Close();

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake_up, BusyPoll::Duration busy_poll)
      : epoll_(std::move(epoll)), wake_(std::move(wake_up)), busy_(busy_poll) {}
  int Wait(std::chrono::milliseconds timeout);
  void RunTasks();

  const UniqueFd epoll_, wake_;
  BusyPoll busy_;
  std::array<epoll_event, 128> events_;
  std::vector<Task> running_;
  Mutex mu_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace kvkeep
