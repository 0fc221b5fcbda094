#include "tiers/policy/lfu_policy.h"

#include <catch2/catch.hpp>

#include "tests/tiers/policy/policy_tester.h"

namespace kvkeep {
namespace {

PolicyTester Lfu() { return PolicyTester("lfu"); }

}  // namespace

TEST_CASE("LFU gives up what was asked for least, and of these the longest untouched") {
  PolicyTester lfu = Lfu();
  lfu.Put("ab");
  lfu.Request("ab");
  lfu.Request("a");
  lfu.Put("xy");
  lfu.Put("z");
  CHECK(lfu.Order() == "yxzba");
  lfu.Request("x");
  CHECK(lfu.Order() == "yzbxa");
}

TEST_CASE("LFU ages: who was asked for often long ago goes after enough victims") {
  PolicyTester lfu = Lfu();
  lfu.Put("a");
  for (int i = 0; i < 3; ++i) lfu.Request("a");  // priority 4
  std::string gone;
  for (const char* pair : {"bc", "de", "fg", "hi"}) {
    lfu.Put(pair);
    lfu.Request(pair);
    gone += lfu.Evict(1);
  }
  // A pair has the age at which it came plus two: with an age of 2 as much as a.
  CHECK(gone == "cbae");
}

TEST_CASE("LFU counts no further than its ring of lists is long") {
  PolicyTester lfu = Lfu();
  lfu.Put("a");
  lfu.Put("b");
  for (int i = 0; i < 1000; ++i) lfu.Request("a");
  for (int i = 0; i < 100; ++i) lfu.Request("b");
  CHECK(lfu.Order() == "ab");  // both are at its end, b since recently
  lfu.Put("x");
  CHECK(lfu.Evict(3) == "xab");
}

}  // namespace kvkeep
