#include "tiers/base/executor.h"

#include <catch2/catch.hpp>
#include <future>

#include "tests/fakes/manual_executor.h"
#include "tiers/base/run_on_threads.h"

namespace kvkeep {

TEST_CASE("one thread runs tasks in the order posted, and all of them before it is joined") {
  std::vector<int> ran;
  {
    ThreadPool pool("test", 1);
    for (int i = 0; i < 100; ++i) pool.Post([&ran, i] { ran.push_back(i); });
  }
  REQUIRE(ran.size() == 100);
  CHECK(std::is_sorted(ran.begin(), ran.end()));
}

TEST_CASE("several threads run every task exactly once") {
  std::atomic<int> ran = 0;
  {
    ThreadPool pool("test", 3);
    for (int i = 0; i < 1000; ++i) pool.Post([&ran] { ++ran; });
  }
  CHECK(ran == 1000);
}

TEST_CASE("ManualExecutor runs nothing by itself and drops what a killed process would lose") {
  ManualExecutor executor;
  int ran = 0;
  executor.Post([&] { executor.Post([&] { ++ran; }); });
  CHECK(ran == 0);
  CHECK(executor.RunAll() == 2);
  CHECK(ran == 1);
  executor.Post([&] { ++ran; });
  executor.Drop();
  CHECK(executor.RunAll() == 0);
  CHECK(ran == 1);
}

TEST_CASE("work that somebody waits for goes first, a sign of life before all; nothing starves") {
  std::string ran;
  {
    std::promise<void> began, all_posted;  // the pool's thread uses them until the pool is gone
    ThreadPool pool("test", 1);
    pool.Post([&began, posted = all_posted.get_future()] {
      began.set_value();
      posted.wait();
    });
    began.get_future().wait();
    for (int i = 0; i < 3; ++i) pool.background()->Post([&] { ran += 'b'; });
    for (int i = 0; i < 20; ++i) pool.Post([&] { ran += '.'; });
    pool.urgent()->Post([&] { ran += '!'; });
    CHECK(pool.queued() == 24);
    all_posted.set_value();
  }
  CHECK(ran == "!.......b.......b......b");
}

TEST_CASE("tasks of one class begin in the order posted, whatever else waits") {
  std::vector<int> usual, background;
  {
    ThreadPool pool("test", 1);
    for (int i = 0; i < 1000; ++i) {
      if (i % 10 == 0) pool.background()->Post([&background, i] { background.push_back(i); });
      pool.Post([&usual, i] { usual.push_back(i); });
    }
  }
  REQUIRE(usual.size() == 1000);
  REQUIRE(background.size() == 100);
  CHECK(std::is_sorted(usual.begin(), usual.end()));
  CHECK(std::is_sorted(background.begin(), background.end()));
}

TEST_CASE("work on several threads is over when the call returns") {
  for (const int threads : {0, 1, 4}) {
    std::atomic<int> next = 0, done = 0, ran = 0;
    RunOnThreads("test", threads, [&] {
      ++ran;
      while (next++ < 1000) ++done;
    });
    CHECK(ran == std::max(threads, 1));
    CHECK(done == 1000);
  }
}

}  // namespace kvkeep
