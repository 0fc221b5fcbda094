#include "server/sockets/event_loop.h"

#include <absl/strings/str_cat.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr uint64_t kWakeKey = 0;

absl::Status LoopFailed(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("local endpoint: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::shared_ptr<EventLoop>> EventLoop::Create(BusyPoll::Duration busy_poll) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return LoopFailed("epoll_create1");
  UniqueFd wake_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_up.valid()) return LoopFailed("eventfd");
  std::shared_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake_up), busy_poll));
  KVKEEP_RETURN_IF_ERROR(loop->Watch(loop->wake_.get(), kWakeKey, EPOLLIN));
  return loop;
}

void EventLoop::Post(Task task) {
  bool first;
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (!first) return;
  const uint64_t one = 1;
  KVKEEP_CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one) || errno == EAGAIN);
}

absl::Status EventLoop::Watch(int fd, uint64_t key, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return LoopFailed("epoll_ctl");
  return absl::OkStatus();
}

void EventLoop::Change(int fd, uint64_t key, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = key}};
  KVKEEP_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void EventLoop::Forget(int fd) {
  KVKEEP_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0);
}

int EventLoop::Wait(std::chrono::milliseconds timeout) {
  const auto wait = [this](int milliseconds) {
    return epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), milliseconds);
  };
  if (timeout == std::chrono::milliseconds(0)) return wait(0);
  const auto began = std::chrono::steady_clock::now();
  const auto waited = [began] { return std::chrono::steady_clock::now() - began; };
  const bool poll = busy_.ShouldPoll();
  int count = 0;
  if (poll) {
    do {
      count = wait(0);
    } while (count == 0 && waited() < busy_.limit());
  }
  const bool found = count != 0;
  if (!found) count = wait(static_cast<int>(timeout.count()));
  busy_.Waited(poll, found, waited());
  return count;
}

void EventLoop::RunOnce(std::chrono::milliseconds timeout, const OnEvent& on_event) {
  const int count = Wait(timeout);
  KVKEEP_CHECK(count >= 0 || errno == EINTR);
  bool woken = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events_[static_cast<size_t>(i)];
    if (event.data.u64 == kWakeKey) {
      woken = true;
    } else {
      on_event(event.data.u64, event.events);
    }
  }
  if (woken) RunTasks();
}

void EventLoop::RunTasks() {
  uint64_t ignored;
  static_cast<void>(!read(wake_.get(), &ignored, sizeof(ignored)));
  {
    MutexLock lock(&mu_);
    running_.swap(tasks_);
  }
  for (Task& task : running_) std::move(task)();
  running_.clear();
}

void EventLoop::Close() {
  std::vector<Task> left;
  MutexLock lock(&mu_);
  closed_ = true;
  left.swap(tasks_);
}

}  // namespace kvkeep
