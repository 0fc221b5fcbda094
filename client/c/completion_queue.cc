#include "client/c/completion_queue.h"

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tiers/base/check.h"

namespace kvkeep::client {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

absl::StatusOr<std::shared_ptr<CompletionQueue>> CompletionQueue::Create(uint32_t capacity) {
  if (capacity == 0 || capacity > KVKEEP_MAX_QUEUE_CAPACITY) {
    return absl::InvalidArgumentError(absl::StrCat("capacity: ", capacity, ", 1 to ",
                                                   KVKEEP_MAX_QUEUE_CAPACITY, " are possible"));
  }
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    const std::string why = absl::StrCat("eventfd: ", std::strerror(errno));
    return errno == EMFILE || errno == ENFILE ? absl::ResourceExhaustedError(why)
                                              : absl::InternalError(why);
  }
  return std::shared_ptr<CompletionQueue>(new CompletionQueue(capacity, fd));
}

CompletionQueue::~CompletionQueue() { close(fd_); }

absl::Status CompletionQueue::Reserve() {
  MutexLock lock(&mu_);
  if (in_flight_ + waiting_.size() >= capacity_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("queue: ", in_flight_, " calls in flight and ", waiting_.size(),
                     " completions not polled fill its capacity of ", capacity_));
  }
  ++in_flight_;
  return absl::OkStatus();
}

void CompletionQueue::Unreserve() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(in_flight_ > 0);
  --in_flight_;
}

void CompletionQueue::Complete(const kvkeep_completion& ended) {
  bool first = false;
  {
    MutexLock lock(&mu_);
    KVKEEP_CHECK(in_flight_ > 0);
    --in_flight_;
    first = waiting_.empty();
    waiting_.push_back(ended);
  }
  if (first) Signal();
}

void CompletionQueue::Signal() {
  const uint64_t one = 1;
  // It fails only when the counter is full, and then the fd is already readable.
  while (write(fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

// Clears the fd before it empties the queue. The other order could lose a wake-up: Poll empties the
// queue, a call completes and signals, Poll clears the fd. This order can at worst leave a signal
// whose completion is gone already, which the next Poll clears.
uint32_t CompletionQueue::Poll(kvkeep_completion* out, uint32_t max) {
  if (max == 0) return 0;
  uint64_t signals = 0;
  while (read(fd_, &signals, sizeof(signals)) < 0 && errno == EINTR) {
  }
  uint32_t taken = 0;
  bool more = false;
  {
    MutexLock lock(&mu_);
    for (; taken < max && !waiting_.empty(); ++taken) {
      out[taken] = waiting_.front();
      waiting_.pop_front();
    }
    more = !waiting_.empty();
  }
  if (more) Signal();
  return taken;
}

uint32_t CompletionQueue::Wait(kvkeep_completion* out, uint32_t max,
                               std::chrono::milliseconds timeout) {
  if (max == 0) return 0;
  const auto deadline = Clock::now() + timeout;
  while (true) {
    const uint32_t taken = Poll(out, max);
    if (taken > 0) return taken;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return 0;
    pollfd ready = {.fd = fd_, .events = POLLIN};
    poll(&ready, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000)));
  }
}

uint32_t CompletionQueue::in_flight() const {
  MutexLock lock(&mu_);
  return in_flight_;
}

}  // namespace kvkeep::client
