#include "server/storage/copy_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <thread>

#include "tests/fakes/fake_numa.h"

namespace kvkeep {
namespace {

// Waits until every thread has begun: each holds one task until all have one.
void AwaitAllBegun(CopyPool& pool, int threads) {
  const auto all = std::make_shared<std::latch>(threads);
  for (int i = 0; i < threads; ++i) pool.threads()->Post([all] { all->arrive_and_wait(); });
  all->wait();
}

}  // namespace

TEST_CASE("copy threads run on the nodes over which G2's segments are spread") {
  FakeNuma numa({0, 2});
  CopyPool pool(3, &numa, NumaChoice::kAuto);
  AwaitAllBegun(pool, 3);
  CHECK(numa.threads_on() == std::map<int, int>{{0, 2}, {2, 1}});
  CHECK(pool.describe() == "copy threads on nodes (0: 2, 2: 1)");
}

TEST_CASE("copy threads run where the kernel puts them if segments are not spread") {
  FakeNuma one({0}), two({0, 1}), owned({0, 1});
  owned.has_policy = true;
  const std::vector<std::pair<FakeNuma*, NumaChoice>> cases = {{&one, NumaChoice::kSpread},
                                                               {&two, NumaChoice::kOff},
                                                               {&two, NumaChoice::kInterleave},
                                                               {&owned, NumaChoice::kAuto}};
  for (const auto& [numa, choice] : cases) {
    CopyPool pool(2, numa, choice);
    AwaitAllBegun(pool, 2);
    CHECK(numa->threads_on().empty());
    CHECK(pool.describe().empty());
  }
}

TEST_CASE("a copy thread that cannot be kept on its node works all the same, and that is told") {
  FakeNuma numa({0, 1});
  numa.refuses_threads = true;
  CopyPool pool(2, &numa, NumaChoice::kSpread);
  AwaitAllBegun(pool, 2);
  CHECK(pool.describe() ==
        "copy threads on nodes (0: 1, 1: 1), 2 of them on any: sched_setaffinity");
}

TEST_CASE("copy threads that would share too few CPUs of their node run anywhere") {
  FakeNuma numa({0, 1});
  numa.cpus_of_node = 1;
  {
    CopyPool pool(2, &numa, NumaChoice::kSpread);
    AwaitAllBegun(pool, 2);
    CHECK(pool.describe() == "copy threads on nodes (0: 1, 1: 1)");
  }
  CopyPool pool(3, &numa, NumaChoice::kSpread);
  AwaitAllBegun(pool, 3);
  CHECK(pool.describe() == "copy threads on nodes (0: 2, 1: 1), 3 of them on any: too few CPUs");
}

TEST_CASE("all that waits has begun when the pool was passed through, near whichever node") {
  FakeNuma numa({0, 1});
  const auto begun = std::make_shared<std::atomic<int>>(0);
  std::promise<void> let_go;
  CopyPool pool(2, &numa, NumaChoice::kSpread);
  while (pool.threads()->idle() < 2) std::this_thread::yield();
  pool.threads()->PostNear(0, [go = let_go.get_future().share()] { go.wait(); });
  // The thread of node 1 does these alone, what is near none before each.
  for (int i = 0; i < 3; ++i) {
    pool.threads()->background()->PostNear(0, [begun] {
      ++*begun;
      // So that a pass that is over too soon finds the next one waiting.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
  }
  pool.PassThrough();
  CHECK(*begun == 3);
  let_go.set_value();
}

}  // namespace kvkeep
