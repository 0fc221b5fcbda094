#include "server/supervision/ticker.h"

#include <catch2/catch.hpp>
#include <optional>

namespace kvkeep {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Work that is ticked, with the answers that the test sets.
struct Work {
  explicit Work(bool rests = false) : at_rest(rests) {}

  Mutex mu;
  CondVar changed;
  int ticks ABSL_GUARDED_BY(mu) = 0;
  const bool at_rest;

  bool Tick() {
    MutexLock lock(&mu);
    ++ticks;
    changed.NotifyAll();
    return at_rest;
  }
  void AwaitTicks(int count) {
    MutexLock lock(&mu);
    while (ticks < count) changed.Wait(&mu);
  }
  int count() {
    MutexLock lock(&mu);
    return ticks;
  }
};

constexpr Ticker::Periods kRestsLong{.work = milliseconds(1), .rest = hours(1)};

}  // namespace

TEST_CASE("a ticker ticks on and on while there is work") {
  Work work;
  Ticker ticker(kRestsLong, [&] { return work.Tick(); });
  ticker.Start();
  work.AwaitTicks(5);
}

TEST_CASE("at rest it ticks when it was woken, and once for each time") {
  Work work(/*rests=*/true);
  Ticker ticker(kRestsLong, [&] { return work.Tick(); });
  ticker.Start();
  work.AwaitTicks(1);
  for (int woken = 1; woken <= 20; ++woken) {
    CHECK(work.count() == woken);
    ticker.Wake();
    work.AwaitTicks(woken + 1);
  }
  CHECK(work.count() == 21);
}

TEST_CASE("who wakes during the tick that finds rest ends it before it begins") {
  Work work(/*rests=*/true);
  std::optional<Ticker> ticker;
  ticker.emplace(kRestsLong, [&] {
    if (work.count() < 3) ticker->Wake();
    return work.Tick();
  });
  ticker->Start();
  work.AwaitTicks(4);
}

TEST_CASE("a ticker that was stopped does not tick, and may be woken") {
  Work work;
  Ticker ticker(kRestsLong, [&] { return work.Tick(); });
  ticker.Start();
  work.AwaitTicks(1);
  ticker.Stop();
  const int ticks = work.count();
  ticker.Wake();
  ticker.Stop();
  CHECK(work.count() == ticks);
}

}  // namespace kvkeep
