#include "tiers/base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <future>

#include "tiers/base/check.h"

namespace kvkeep {

void AwaitTurn(Executor& executor, std::optional<int> node) {
  std::promise<void> passed;
  executor.PostNear(node, [&passed] { passed.set_value(); });
  passed.get_future().wait();
}

size_t ThreadPool::Lane::queued() const {
  size_t queued = 0;
  for (const auto& queue : queues) queued += queue.size();
  return queued;
}

ThreadPool::ThreadPool(std::string name, int threads)
    : ThreadPool(std::move(name), threads, {}, nullptr) {}

ThreadPool::ThreadPool(std::string name, int threads, const std::vector<int>& nodes,
                       std::function<void(int node)> begin)
    : lanes_(1 + std::min(nodes.size(), static_cast<size_t>(threads))) {
  KVKEEP_CHECK(threads > 0);
  name.resize(std::min<size_t>(name.size(), 15));  // the kernel's limit
  const size_t divided = lanes_.size() - 1;
  for (size_t i = 0; i < divided; ++i) lanes_[1 + i].node = nodes[i];
  for (size_t i = 0; i < static_cast<size_t>(threads); ++i) {
    Thread& self = threads_.emplace_back();
    if (divided > 0) self.lane = 1 + i % divided;
    self.thread = std::thread([this, name, begin, &self, node = lanes_[self.lane].node] {
      pthread_setname_np(pthread_self(), name.c_str());
      if (node.has_value()) begin(*node);
      Run(self);
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    while (PickWaiting(lanes_.front()) != nullptr) {
    }
  }
  for (Thread& one : threads_) one.wake.NotifyOne();
  for (Thread& one : threads_) one.thread.join();
}

ThreadPool::Lane& ThreadPool::LaneOf(std::optional<int> node) {
  for (Lane& lane : lanes_) {
    if (lane.node == node) return lane;
  }
  return lanes_.front();
}

ThreadPool::Thread* ThreadPool::PickWaiting(Lane& lane) {
  const auto fewer = [](const Lane& a, const Lane& b) {
    return a.waiting.size() < b.waiting.size();
  };
  Lane& from =
      !lane.waiting.empty() ? lane : *std::max_element(lanes_.begin(), lanes_.end(), fewer);
  if (from.waiting.empty()) return nullptr;
  Thread* const picked = from.waiting.back();  // its caches are the warmest
  from.waiting.pop_back();
  picked->woken = true;
  ++from.woken;
  return picked;
}

void ThreadPool::PostTo(Class its_class, std::optional<int> node, Task task) {
  KVKEEP_CHECK(task != nullptr);
  Thread* to_wake = nullptr;
  {
    MutexLock lock(&mu_);
    Lane& lane = LaneOf(node);
    lane.queues[its_class].push_back({.number = posted_++, .task = std::move(task)});
    to_wake = PickWaiting(lane);
  }
  if (to_wake != nullptr) to_wake->wake.NotifyOne();
}

size_t ThreadPool::queued() const {
  MutexLock lock(&mu_);
  size_t queued = 0;
  for (const Lane& lane : lanes_) queued += lane.queued();
  return queued;
}

size_t ThreadPool::idle() const {
  MutexLock lock(&mu_);
  size_t idle = 0;
  for (const Lane& lane : lanes_) idle += lane.waiting.size();
  return idle;
}

ThreadPool::Lane* ThreadPool::Find(Class its_class, const Lane& home) {
  Lane* found = nullptr;
  std::pair<bool, uint64_t> least;  // those of other lanes come last, then the oldest is first
  for (Lane& lane : lanes_) {
    if (lane.queues[its_class].empty()) continue;
    const bool others = &lane != &home && &lane != &lanes_.front();
    if (others && lane.queued() <= lane.woken) continue;
    const std::pair<bool, uint64_t> rank(others, lane.queues[its_class].front().number);
    if (found != nullptr && least < rank) continue;
    found = &lane;
    least = rank;
  }
  return found;
}

Executor::Task ThreadPool::TakeNext(const Lane& home) {
  Class its_class = kUrgent;
  Lane* lane = Find(kUrgent, home);
  if (lane == nullptr) {
    Lane* const background = Find(kBackground, home);
    its_class = kUsual;
    lane = Find(kUsual, home);
    if (background != nullptr && (lane == nullptr || ++passed_over_ >= kShare)) {
      passed_over_ = 0;
      its_class = kBackground;
      lane = background;
    }
  }
  if (lane == nullptr) return nullptr;
  Task task = std::move(lane->queues[its_class].front().task);
  lane->queues[its_class].pop_front();
  return task;
}

// No thread waits while there are more tasks than threads that were woken and have not looked yet:
// one that finds nothing has seen that each lane has no more than that, and its own has none.
void ThreadPool::Run(Thread& self) {
  while (true) {
    Task task;
    {
      MutexLock lock(&mu_);
      Lane& home = lanes_[self.lane];
      while ((task = TakeNext(home)) == nullptr) {
        if (stopping_) return;
        home.waiting.push_back(&self);
        self.woken = false;
        while (!self.woken) self.wake.Wait(&mu_);
        --home.woken;
      }
    }
    std::move(task)();
  }
}

}  // namespace kvkeep
