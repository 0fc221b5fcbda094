#include "tiers/policy/s3fifo_policy.h"

#include <catch2/catch.hpp>

#include "tests/tiers/policy/policy_tester.h"

namespace kvkeep {
namespace {

PolicyTester S3Fifo() { return PolicyTester("s3fifo"); }

}  // namespace

TEST_CASE("S3-FIFO lets go what nobody asks for again, and keeps what was asked for twice") {
  PolicyTester s3 = S3Fifo();
  s3.Put("a");
  s3.Put("b");
  s3.Request("a");
  s3.Request("a");
  s3.Request("b");
  s3.Put("c");
  CHECK(s3.Evict(2) == "bc");  // a has gone over to the main queue
  CHECK(s3.Order() == "a");
}

TEST_CASE("what comes back while its ghost is there goes into the main queue of S3-FIFO") {
  PolicyTester s3 = S3Fifo();
  s3.Put("ab");
  s3.Request("ab");
  s3.Request("ab");
  s3.Put("x");
  CHECK(s3.Evict(1) == "x");
  s3.Put("x");
  s3.Put("y");
  CHECK(s3.Order() == "ybax");
  CHECK(s3.Evict(1) == "y");
  // With the small queue empty the main one gives, its oldest first.
  CHECK(s3.Evict(3) == "bax");
}

TEST_CASE("a hit gives a chunk of the main queue another round, each once") {
  PolicyTester s3 = S3Fifo();
  s3.Put("a");
  s3.Put("b");
  for (int i = 0; i < 2; ++i) s3.Request("ab");
  CHECK(s3.Victim() == 'a');  // both are in the main queue now, with no hits
  s3.Request("a");
  CHECK(s3.Evict(2) == "ba");
}

TEST_CASE("what was removed leaves no ghost in S3-FIFO") {
  PolicyTester s3 = S3Fifo();
  s3.Put("abx");
  s3.Request("ab");
  s3.Request("ab");
  s3.Erase("x");
  s3.Put("x");
  s3.Put("y");
  CHECK(s3.Evict(2) == "xy");
}

}  // namespace kvkeep
