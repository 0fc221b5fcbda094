#include "tiers/objects/breaker.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

using State = Breaker::State;
using Failure = Breaker::Failure;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct TimedBreaker {
  SeededRandom random{1};
  Breaker breaker{{}, &random};
  MonotonicTime now{seconds(1000)};

  Breaker::Ticket Sent() {
    const auto ticket = breaker.Admit(now);
    REQUIRE(ticket.has_value());
    return *ticket;
  }
  void Serve() { breaker.Serves(Sent(), now); }
  void Fail(Failure failure = Failure::kAnswer) { breaker.Fails(Sent(), failure, now); }
  void OpenByConnections() {
    for (int i = 0; i < 3; ++i) Fail(Failure::kConnection);
    REQUIRE(breaker.state() == State::kOpen);
  }
};

}  // namespace

TEST_CASE("three connection failures in a row open a breaker, and any answer begins anew") {
  TimedBreaker b;
  b.Fail(Failure::kConnection);
  b.Fail(Failure::kConnection);
  b.Serve();
  b.Fail(Failure::kConnection);
  b.Fail(Failure::kConnection);
  b.Fail(Failure::kAnswer);
  b.Fail(Failure::kConnection);
  b.Fail(Failure::kConnection);
  CHECK(b.breaker.state() == State::kClosed);
  b.Fail(Failure::kConnection);
  CHECK(b.breaker.state() == State::kOpen);
  CHECK_FALSE(b.breaker.Admit(b.now).has_value());
  CHECK(b.breaker.times_opened() == 1);
}

TEST_CASE("half of ten answers within five seconds open it, nine or slower ones do not") {
  TimedBreaker b;
  for (int i = 0; i < 5; ++i) b.Serve();
  for (int i = 0; i < 4; ++i) b.Fail();
  CHECK(b.breaker.state() == State::kClosed);
  b.Fail();
  CHECK(b.breaker.state() == State::kOpen);

  TimedBreaker slow;
  for (int i = 0; i < 100; ++i) {
    slow.Fail();
    slow.now += milliseconds(600);
  }
  CHECK(slow.breaker.state() == State::kClosed);

  TimedBreaker mostly;
  for (int i = 0; i < 300; ++i) {
    mostly.Serve();
    mostly.Serve();
    mostly.Fail();
    mostly.now += milliseconds(20);
  }
  CHECK(mostly.breaker.state() == State::kClosed);
}

TEST_CASE("an open breaker lets one probe through after its pause, which closes it") {
  TimedBreaker b;
  b.OpenByConnections();
  CHECK(b.breaker.RetryIn(b.now) >= milliseconds(3750));
  CHECK(b.breaker.RetryIn(b.now) <= seconds(5));
  b.now += b.breaker.RetryIn(b.now) - MonotonicTime(1);
  CHECK_FALSE(b.breaker.Admit(b.now).has_value());
  b.now += MonotonicTime(1);
  const Breaker::Ticket probe = b.Sent();
  CHECK(b.breaker.state() == State::kProbing);
  CHECK_FALSE(b.breaker.Admit(b.now + seconds(1000)).has_value());
  b.breaker.Serves(probe, b.now);
  CHECK(b.breaker.state() == State::kClosed);
  CHECK(b.breaker.RetryIn(b.now).count() == 0);
  b.Fail(Failure::kConnection);
  b.Fail(Failure::kConnection);
  CHECK(b.breaker.state() == State::kClosed);  // nothing from before counts
}

TEST_CASE("a probe that fails opens it for twice as long, up to five minutes; a close forgets") {
  TimedBreaker b;
  b.OpenByConnections();
  std::vector<MonotonicTime> pauses;
  for (int i = 0; i < 9; ++i) {
    pauses.push_back(b.breaker.RetryIn(b.now));
    b.now += pauses.back();
    b.Fail();
  }
  CHECK(pauses[1] > seconds(7));
  CHECK(pauses[1] <= seconds(10));
  CHECK(pauses[3] > seconds(29));
  CHECK(pauses.back() >= seconds(225));
  CHECK(pauses.back() <= seconds(300));
  b.now += seconds(300);
  b.Serve();
  b.OpenByConnections();
  CHECK(b.breaker.RetryIn(b.now) <= seconds(5));
}

TEST_CASE("what somebody has to mend opens it at once, and it is tried each minute") {
  TimedBreaker b;
  b.breaker.Misconfigured(b.Sent(), b.now);
  CHECK(b.breaker.misconfigured());
  for (int i = 0; i < 5; ++i) {
    const MonotonicTime pause = b.breaker.RetryIn(b.now);
    CHECK(pause >= seconds(45));
    CHECK(pause <= seconds(60));
    b.now += pause;
    b.breaker.Misconfigured(b.Sent(), b.now);
  }
  // Then the server goes away: its pauses are those of a failure, from the first on.
  b.now += seconds(60);
  b.Fail(Failure::kConnection);
  CHECK_FALSE(b.breaker.misconfigured());
  CHECK(b.breaker.RetryIn(b.now) <= seconds(5));
  b.now += seconds(5);
  b.Serve();
  CHECK(b.breaker.state() == State::kClosed);
}

TEST_CASE("a probe that was cancelled gives its turn to the next one at once") {
  TimedBreaker b;
  b.OpenByConnections();
  b.now += seconds(5);
  const Breaker::Ticket cancelled = b.Sent();
  b.breaker.Abandons(cancelled, b.now);
  const Breaker::Ticket next = b.Sent();
  b.breaker.Fails(cancelled, Failure::kConnection, b.now);  // reports nothing any more
  CHECK(b.breaker.state() == State::kProbing);
  b.breaker.Serves(next, b.now);
  CHECK(b.breaker.state() == State::kClosed);
  b.breaker.Abandons(b.Sent(), b.now);
  CHECK(b.breaker.state() == State::kClosed);
}

TEST_CASE("answers to what was sent before it opened say nothing of now") {
  TimedBreaker b;
  std::vector<Breaker::Ticket> old;
  for (int i = 0; i < 40; ++i) old.push_back(b.Sent());
  b.OpenByConnections();
  const MonotonicTime pause = b.breaker.RetryIn(b.now);
  for (int i = 0; i < 10; ++i) b.breaker.Fails(old[i], Failure::kConnection, b.now);
  for (int i = 10; i < 20; ++i) b.breaker.Serves(old[i], b.now);
  for (int i = 20; i < 30; ++i) b.breaker.Misconfigured(old[i], b.now);
  CHECK(b.breaker.state() == State::kOpen);
  CHECK(b.breaker.RetryIn(b.now) == pause);
  b.now += seconds(5);
  b.Serve();
  for (int i = 30; i < 40; ++i) b.breaker.Fails(old[i], Failure::kConnection, b.now);
  CHECK(b.breaker.state() == State::kClosed);
}

}  // namespace kvkeep
