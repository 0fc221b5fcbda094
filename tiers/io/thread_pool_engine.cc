#include "tiers/io/thread_pool_engine.h"

#include <absl/strings/str_cat.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/io/engine_device.h"

namespace kvkeep {
namespace {

int64_t MoveBytes(int fd, const IoFragment& fragment) {
  const auto offset = static_cast<off_t>(fragment.offset);
  const ssize_t moved = fragment.is_read() ? pread(fd, fragment.data, fragment.bytes, offset)
                                           : pwrite(fd, fragment.data, fragment.bytes, offset);
  return moved >= 0 ? moved : -errno;
}

class ThreadPoolEngine final : public IoEngine, private OperationSink {
 public:
  ThreadPoolEngine(const IoEngineOptions& options, std::string why) : why_(std::move(why)) {
    for (uint32_t i = 0; i < options.fallback_threads; ++i) {
      threads_.emplace_back([this] {
        pthread_setname_np(pthread_self(), "kvkeep-io-pool");
        Work();
      });
    }
  }

  ~ThreadPoolEngine() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      for (const std::shared_ptr<DeviceQueue>& queue : active_) {
        for (const auto& request : queue->FailWaiting(StoppingError())) {
          completed_.push_back(CompletedOperation::Of(*request));
        }
      }
      active_.clear();
    }
    work_or_stop_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
    MutexLock lock(&mu_);
    KVKEEP_CHECK(completed_.empty() && active_.empty());
  }

  absl::Status RegisterBuffer(std::span<std::byte>) override {
    ++counters_.buffer_registration_failures;
    return absl::UnimplementedError("the thread-pool engine has no registered buffers");
  }

  absl::StatusOr<std::unique_ptr<Device>> Open(const DeviceOptions& options) override {
    return OpenEngineDevice(options, this, &counters_, &notes_);
  }

  Stats stats() const override { return counters_.Snapshot(); }

  std::string describe() const override {
    return absl::StrCat("thread pool of ", threads_.size(), " (", why_, "), no registered buffers",
                        notes_.ToString());
  }

 private:
  // One turn of a thread: a callback to run, or a fragment to move.
  struct Job {
    std::optional<CompletedOperation> completed;
    std::shared_ptr<OpenDevice> device;
    std::optional<IoFragment> fragment;
  };

  static absl::Status StoppingError() {
    return absl::UnavailableError("the I/O engine is stopping");
  }

  void Accept(SubmittedOperation submitted) override {
    {
      MutexLock lock(&mu_);
      if (!submitted.check.ok() || stopping_) {
        absl::Status status = submitted.check.ok() ? StoppingError() : submitted.check;
        completed_.push_back(
            CompletedOperation::Refused(std::move(submitted), std::move(status), &counters_));
      } else {
        std::shared_ptr<DeviceQueue> queue = std::move(submitted).Queue();
        if (std::find(active_.begin(), active_.end(), queue) == active_.end()) {
          active_.push_back(std::move(queue));
        }
      }
    }
    work_or_stop_.NotifyOne();
  }

  void Work() {
    while (true) {
      Job job;
      {
        MutexLock lock(&mu_);
        while (!TakeJob(&job)) {
          if (stopping_) return;
          work_or_stop_.Wait(&mu_);
        }
        // One Submit wakes one thread, but may have brought work for several: pass it on.
        if (!completed_.empty() || !active_.empty()) work_or_stop_.NotifyOne();
      }
      if (job.completed) {
        std::move(*job.completed).Tell();
      } else {
        Move(job.device, *job.fragment);
      }
    }
  }

  bool TakeJob(Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!completed_.empty()) {
      job->completed = std::move(completed_.front());
      completed_.pop_front();
      return true;
    }
    for (size_t queues = active_.size(); queues > 0; --queues) {
      std::shared_ptr<DeviceQueue> queue = active_.front();
      active_.pop_front();
      job->fragment = queue->Next();
      if (queue->has_waiting()) active_.push_back(std::move(queue));  // behind the other devices
      if (job->fragment) {
        job->device = job->fragment->request->file;
        return true;
      }
    }
    return false;
  }

  bool Stopping() {
    MutexLock lock(&mu_);
    return stopping_;
  }

  void Move(const std::shared_ptr<OpenDevice>& device, IoFragment& fragment) {
    DeviceQueue::Outcome outcome;
    do {
      if (outcome.next == DeviceQueue::Outcome::Next::kAgainLater) {
        std::this_thread::sleep_for(outcome.pause);  // for the kernel to get memory or requests
      }
      const bool again = outcome.next != DeviceQueue::Outcome::Next::kFinished;
      ++counters_.plain_buffer_ios;
      const int64_t result =
          again && Stopping() ? -ECANCELED : MoveBytes(device->file.fd(), fragment);
      MutexLock lock(&mu_);
      outcome = device->queue->OnResult(fragment, result);
      if (!device->queue->has_waiting()) {
        std::erase(active_, device->queue);
      } else if (outcome.next == DeviceQueue::Outcome::Next::kFinished) {
        work_or_stop_.NotifyOne();  // a slot is free, and this thread may be long in the callback
      }
    } while (outcome.next != DeviceQueue::Outcome::Next::kFinished);
    if (outcome.completed) CompletedOperation::Of(*outcome.completed).Tell();
  }

  const std::string why_;
  IoCounters counters_;
  FallbackNotes notes_;

  Mutex mu_;  // guards every device's queue too
  CondVar work_or_stop_;
  std::deque<std::shared_ptr<DeviceQueue>> active_ ABSL_GUARDED_BY(mu_);  // with waiting operations
  std::deque<CompletedOperation> completed_ ABSL_GUARDED_BY(mu_);        // never issued
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;  // constant after construction; uses all of the above
};

}  // namespace

std::unique_ptr<IoEngine> CreateThreadPoolEngine(const IoEngineOptions& options, std::string why) {
  return std::make_unique<ThreadPoolEngine>(options, std::move(why));
}

}  // namespace kvkeep
