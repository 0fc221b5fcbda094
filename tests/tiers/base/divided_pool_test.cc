// A ThreadPool whose threads are divided among NUMA nodes: whose threads run what.
#include <catch2/catch.hpp>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "tiers/base/executor.h"

namespace kvkeep {
namespace {

using OnNode = std::map<int, int>;

thread_local int node_of_thread = -1;
void Begin(int node) { node_of_thread = node; }

void AwaitIdle(const ThreadPool& pool, size_t threads) {
  while (pool.idle() < threads) std::this_thread::yield();
}

// Copies share it, so a task may outlive the test's own.
class Event {
 public:
  void Set() const { set_->set_value(); }
  void Await() const { is_set_.wait(); }

 private:
  std::shared_ptr<std::promise<void>> set_ = std::make_shared<std::promise<void>>();
  std::shared_future<void> is_set_ = set_->get_future().share();
};

// Keeps the thread of a node busy until it is let go. REQUIRES: the thread waits.
class Busy {
 public:
  Busy(ThreadPool* pool, int node) {
    const auto began_on = std::make_shared<std::promise<int>>();
    pool->PostNear(node, [began_on, let_go = let_go_] {
      began_on->set_value(node_of_thread);
      let_go.Await();
    });
    CHECK(began_on->get_future().get() == node);
  }
  void LetGo() const { let_go_.Set(); }

 private:
  const Event let_go_;
};

// Runs a task near the node and returns the node of the thread that ran it.
int RanOn(ThreadPool* pool, std::optional<int> node) {
  const auto ran_on = std::make_shared<std::promise<int>>();
  pool->PostNear(node, [ran_on] { ran_on->set_value(node_of_thread); });
  return ran_on->get_future().get();
}

}  // namespace

TEST_CASE("threads are divided evenly among nodes; each begins on its own") {
  const auto divide = [](int threads, const std::vector<int>& nodes) {
    OnNode begun;
    Mutex mu;
    {
      ThreadPool pool("test", threads, nodes, [&](int node) {
        MutexLock lock(&mu);
        ++begun[node];
      });
    }
    return begun;
  };
  CHECK(divide(5, {0, 2}) == OnNode{{0, 3}, {2, 2}});
  CHECK(divide(2, {0, 1, 2}) == OnNode{{0, 1}, {1, 1}});
  CHECK(divide(3, {}).empty());
}

TEST_CASE("a task wakes a thread of its node if one waits, else one of another node") {
  ThreadPool pool("test", 3, {0, 2}, Begin);  // two threads of node 0, one of node 2
  for (int i = 0; i < 20; ++i) {
    AwaitIdle(pool, 3);
    CHECK(RanOn(&pool, 2) == 2);
    AwaitIdle(pool, 3);
    CHECK(RanOn(&pool, 0) == 0);
  }
  AwaitIdle(pool, 3);
  Busy two(&pool, 2);
  CHECK(RanOn(&pool, 2) == 0);
  CHECK(RanOn(&pool, std::nullopt) == 0);
  two.LetGo();
}

TEST_CASE("what is near no node that has threads is run by any thread") {
  ThreadPool pool("test", 2, {0, 1, 2}, Begin);
  AwaitIdle(pool, 2);
  Busy first(&pool, 0);
  CHECK(RanOn(&pool, 2) == 1);
  CHECK(RanOn(&pool, 77) == 1);
  CHECK(RanOn(&pool, std::nullopt) == 1);
  first.LetGo();
}

TEST_CASE("a free thread takes its own node's tasks and those near none, then the others'") {
  std::string ran;
  {
    ThreadPool pool("test", 2, {0, 1}, Begin);
    AwaitIdle(pool, 2);
    Busy zero(&pool, 0), one(&pool, 1);
    const Event last;
    for (int i = 0; i < 3; ++i) {
      pool.PostNear(0, [&ran, i] { ran += static_cast<char>('a' + i); });
      pool.PostNear(1, [&ran, i] { ran += static_cast<char>('1' + i); });
      pool.Post([&ran] { ran += '.'; });
      pool.PostNear(77, [&ran] { ran += '?'; });  // nobody's node
    }
    pool.PostNear(1, [last] { last.Set(); });
    zero.LetGo();
    last.Await();  // the other thread is busy all the time
    CHECK(ran == "a.?b.?c.?123");
    one.LetGo();
  }
}

TEST_CASE("a task for which a thread was woken is left to it by threads of other nodes") {
  ThreadPool pool("test", 2, {0, 1}, Begin);
  for (int i = 0; i < 200; ++i) {
    AwaitIdle(pool, 2);
    const auto ran_on = std::make_shared<std::promise<int>>();
    pool.PostNear(0, [&pool, ran_on] {
      // Its thread waits, and takes longer to wake than this thread to look for the next task.
      pool.PostNear(1, [ran_on] { ran_on->set_value(node_of_thread); });
    });
    CHECK(ran_on->get_future().get() == 1);
  }
}

TEST_CASE("no thread waits while a task does, whatever is near which node") {
  constexpr int kThreads = 5;
  ThreadPool pool("test", kThreads, {0, 1, 2}, Begin);
  uint32_t seed = 1;
  for (int round = 0; round < 2000; ++round) {
    std::latch all(kThreads);  // each task holds its thread until every thread has one
    for (int i = 0; i < kThreads; ++i) {
      seed = seed * 1664525 + 1013904223;
      const int node = static_cast<int>(seed >> 30);
      const auto meet = [&all] { all.arrive_and_wait(); };
      i % 2 == 0 ? pool.PostNear(node, meet) : pool.background()->PostNear(node, meet);
    }
    all.wait();
    AwaitIdle(pool, kThreads);  // `all` must outlive them
  }
}

TEST_CASE("classes come before nodes, and background has its share on every node") {
  for (const int free : {0, 1}) {
    std::string ran;
    {
      ThreadPool pool("test", 2, {0, 1}, Begin);
      AwaitIdle(pool, 2);
      Busy zero(&pool, 0), one(&pool, 1);
      for (int i = 0; i < 3; ++i) pool.background()->PostNear(i % 2, [&] { ran += 'b'; });
      for (int i = 0; i < 20; ++i) pool.PostNear(i % 2, [&] { ran += '.'; });
      pool.urgent()->Post([&] { ran += '!'; });
      CHECK(pool.queued() == 24);
      const Event last;
      pool.background()->PostNear(1 - free, [last] { last.Set(); });
      (free == 0 ? zero : one).LetGo();
      last.Await();
      (free == 0 ? one : zero).LetGo();
    }
    CHECK(ran == "!.......b.......b......b");
  }
}

TEST_CASE("a divided pool that stops runs what is queued, and what that posts") {
  std::atomic<int> ran = 0;
  for (int round = 0; round < 100; ++round) {
    ThreadPool pool("test", 4, {0, 1}, Begin);
    for (int i = 0; i < 30; ++i) {
      pool.PostNear(i % 3,
                    [&pool, &ran, i] { pool.background()->PostNear(i % 2, [&ran] { ++ran; }); });
    }
  }
  CHECK(ran == 3000);
}

}  // namespace kvkeep
