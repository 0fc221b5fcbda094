#include "tiers/base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <future>

#include "tiers/base/check.h"

namespace kvkeep {

void AwaitTurn(Executor& executor) {
  std::promise<void> passed;
  executor.Post([&passed] { passed.set_value(); });
  passed.get_future().wait();
}

ThreadPool::ThreadPool(std::string name, int threads) {
  KVKEEP_CHECK(threads > 0);
  name.resize(std::min<size_t>(name.size(), 15));  // the kernel's limit
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name] {
      pthread_setname_np(pthread_self(), name.c_str());
      Run();
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  work_or_stop_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::PostTo(Class its_class, Task task) {
  KVKEEP_CHECK(task != nullptr);
  {
    MutexLock lock(&mu_);
    queues_[its_class].push_back(std::move(task));
  }
  work_or_stop_.NotifyOne();
}

size_t ThreadPool::queued() const {
  MutexLock lock(&mu_);
  size_t queued = 0;
  for (const std::deque<Task>& queue : queues_) queued += queue.size();
  return queued;
}

bool ThreadPool::empty() const {
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const auto& queue) { return queue.empty(); });
}

Executor::Task ThreadPool::TakeNext() {
  Class next = kBackground;
  if (!queues_[kUrgent].empty()) {
    next = kUrgent;
  } else if (queues_[kBackground].empty()) {
    next = kUsual;
  } else if (!queues_[kUsual].empty() && ++passed_over_ < kShare) {
    next = kUsual;
  } else {
    passed_over_ = 0;
  }
  Task task = std::move(queues_[next].front());
  queues_[next].pop_front();
  return task;
}

void ThreadPool::Run() {
  while (true) {
    Task task;
    {
      MutexLock lock(&mu_);
      while (empty() && !stopping_) work_or_stop_.Wait(&mu_);
      if (empty()) return;
      task = TakeNext();
    }
    std::move(task)();
  }
}

}  // namespace kvkeep
