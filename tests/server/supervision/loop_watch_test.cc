#include "server/supervision/loop_watch.h"

#include <catch2/catch.hpp>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

struct Fixture {
  ManualClock clock;
  ManualExecutor quick, slow;
  LoopWatch watch{&clock};

  Fixture() {
    watch.Watch("quick", &quick);
    watch.Watch("slow", &slow, LoopWatch::Waits::kForDisk);
  }
  MonotonicTime lag(size_t loop) const { return watch.lags().at(loop).lag; }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a loop that was never asked is not late") {
  REQUIRE(watch.lags().size() == 2);
  CHECK(watch.lags()[0].loop == "quick");
  CHECK(watch.lags()[0].waits == LoopWatch::Waits::kForNobody);
  CHECK(watch.lags()[1].loop == "slow");
  CHECK(watch.lags()[1].waits == LoopWatch::Waits::kForDisk);
  clock.Advance(seconds(100));
  CHECK(lag(0) == seconds(0));
  CHECK(lag(1) == seconds(0));
}

TEST_CASE_METHOD(Fixture, "a loop that does not answer is later and later; the other is not") {
  watch.Poll();
  quick.RunAll();
  clock.Advance(seconds(3));
  CHECK(lag(0) == seconds(0));
  CHECK(lag(1) == seconds(3));
  watch.Poll();
  CHECK(slow.size() == 1);  // not asked again meanwhile
  CHECK(quick.size() == 1);
  quick.RunAll();
  clock.Advance(seconds(2));
  CHECK(lag(0) == seconds(0));
  CHECK(lag(1) == seconds(5));
}

TEST_CASE_METHOD(Fixture, "what a probe took is the lag until the next one has run") {
  watch.Poll();
  quick.RunAll();
  clock.Advance(seconds(4));
  slow.RunAll();
  CHECK(lag(1) == seconds(4));
  clock.Advance(seconds(1));
  CHECK(lag(1) == seconds(4));
  watch.Poll();
  CHECK(lag(1) == seconds(4));  // the new one is not there yet
  slow.RunAll();
  CHECK(lag(1) == seconds(0));
}

TEST_CASE_METHOD(Fixture, "probes may run or be dropped when nobody watches any more") {
  watch.Poll();
  watch.ForgetAll();
  CHECK(watch.lags().empty());
  slow.RunAll();
  quick.Drop();
  watch.Poll();
  CHECK(slow.idle());
}

}  // namespace kvkeep
