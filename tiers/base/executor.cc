#include "tiers/base/executor.h"

#include <pthread.h>

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

void ThreadPool::Post(Task task) {
  KVKEEP_CHECK(task != nullptr);
  {
    MutexLock lock(&mu_);
    queue_.push_back(std::move(task));
  }
  work_or_stop_.NotifyOne();
}

size_t ThreadPool::queued() const {
  MutexLock lock(&mu_);
  return queue_.size();
}

void ThreadPool::Run() {
  while (true) {
    Task task;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) work_or_stop_.Wait(&mu_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    std::move(task)();
  }
}

}  // namespace kvkeep
