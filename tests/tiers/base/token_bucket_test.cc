#include "tiers/base/token_bucket.h"

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// Takes single tokens until there is none. Returns how many.
uint64_t Drain(TokenBucket& bucket, MonotonicTime now) {
  uint64_t taken = 0;
  while (!bucket.Wait(now).has_value()) {
    bucket.Take(1);
    ++taken;
  }
  return taken;
}

}  // namespace

TEST_CASE("a second's tokens can be saved and taken at once, and then they come at the rate") {
  TokenBucket bucket(100);
  const MonotonicTime start(12345);
  CHECK(Drain(bucket, start) == 100);
  CHECK(bucket.Wait(start) == milliseconds(10));
  CHECK_FALSE(bucket.Wait(start + milliseconds(10)).has_value());
  CHECK(Drain(bucket, start + milliseconds(250)) == 25);
  CHECK(Drain(bucket, start + seconds(1000)) == 100);
}

TEST_CASE("more than can be saved may be taken once, and is paid off before anything else") {
  TokenBucket bucket(100);
  bucket.Take(1000);
  CHECK(bucket.Wait(seconds(5)) == milliseconds(9010));
  CHECK(bucket.Wait(seconds(14)) == milliseconds(10));
  CHECK(bucket.Wait(seconds(14) + milliseconds(9)) == milliseconds(1));
  CHECK(Drain(bucket, seconds(14) + milliseconds(20)) == 2);
}

TEST_CASE("without a limit there is always a token, whatever is taken") {
  TokenBucket bucket;
  for (int i = 0; i < 3; ++i) {
    bucket.Take(UINT64_MAX);
    CHECK_FALSE(bucket.Wait(seconds(i)).has_value());
  }
}

TEST_CASE("a clock that stands still or goes back brings nothing, and later nothing twice") {
  TokenBucket bucket(10);
  CHECK(Drain(bucket, seconds(100)) == 10);
  for (int i = 0; i < 1000; ++i) CHECK(bucket.Wait(seconds(100)).has_value());
  CHECK(bucket.Wait(seconds(50)).has_value());
  CHECK(bucket.Wait(MonotonicTime(-1)).has_value());
  CHECK(Drain(bucket, seconds(100) + milliseconds(500)) == 5);
}

TEST_CASE("no fraction of a token is lost or made, however often it is asked") {
  // A time that is no multiple of a token's, at rates below and above one a nanosecond.
  for (const uint64_t rate : {3ull, 999ull, 1'000'003ull, 1'000'000'007ull, 7'000'000'001ull}) {
    INFO(rate);
    TokenBucket bucket(rate);
    bucket.Wait(nanoseconds(0));
    bucket.Take(5 * rate);  // owes four seconds' worth
    MonotonicTime now(0);
    while (now < seconds(4) - milliseconds(1)) {
      now += nanoseconds(999'983);
      REQUIRE(bucket.Wait(now).has_value());
    }
    REQUIRE(bucket.Wait(seconds(4)).has_value());  // exactly nothing is left
    const auto token = nanoseconds(1'000'000'000 / rate + 1);
    CHECK_FALSE(bucket.Wait(seconds(4) + token).has_value());
  }
}

TEST_CASE("the largest rates, times and amounts stay within bounds") {
  TokenBucket bucket(TokenBucket::kMaxPerSecond);
  CHECK_FALSE(bucket.Wait(MonotonicTime(0)).has_value());
  for (int i = 0; i < 5; ++i) bucket.Take(UINT64_MAX);
  const auto wait = bucket.Wait(MonotonicTime(1));
  REQUIRE(wait.has_value());
  CHECK(*wait > seconds(3));
  CHECK(*wait <= seconds(5));
  CHECK_FALSE(bucket.Wait(MonotonicTime::max()).has_value());
  TokenBucket slow(1);
  slow.Take(UINT64_MAX);
  REQUIRE(slow.Wait(MonotonicTime(0)).has_value());
  CHECK(*slow.Wait(MonotonicTime(0)) > std::chrono::hours(24 * 365));
  CHECK(slow.Wait(MonotonicTime::max()).has_value());
  TokenBucket long_burst(TokenBucket::kMaxPerSecond, milliseconds(1ll << 50));
  CHECK_FALSE(long_burst.Wait(MonotonicTime::max()).has_value());
}

TEST_CASE("in any time no more is taken than came, was saved, and one use") {
  SeededRandom random(7);
  for (int round = 0; round < 20; ++round) {
    const uint64_t rate = 1 + random.NextU64() % 1'000'000;
    TokenBucket bucket(rate, milliseconds(200));
    MonotonicTime now(0);
    uint64_t taken = 0, largest = 0;
    for (int i = 0; i < 2000; ++i) {
      now += nanoseconds(random.NextU64() % 10'000'000);
      if (bucket.Wait(now).has_value()) continue;
      const uint64_t use = random.NextU64() % (rate / 10 + 2);
      bucket.Take(use);
      taken += use;
      largest = std::max(largest, use);
    }
    const double came = static_cast<double>(rate) * std::chrono::duration<double>(now).count();
    CHECK(static_cast<double>(taken) <=
          came + static_cast<double>(rate) / 5 + static_cast<double>(largest) + 1);
    CHECK(static_cast<double>(taken) > came / 4);
  }
}

}  // namespace kvkeep
