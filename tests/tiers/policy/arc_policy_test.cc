#include "tiers/policy/arc_policy.h"

#include <catch2/catch.hpp>

#include "tests/tiers/policy/policy_tester.h"

namespace kvkeep {
namespace {

PolicyTester Arc() { return PolicyTester("arc"); }
uint32_t Target(PolicyTester& arc) { return dynamic_cast<ArcPolicy&>(arc.policy()).target(); }

}  // namespace

TEST_CASE("ARC keeps what was asked for again, while what came once passes through") {
  PolicyTester arc = Arc();
  arc.Put("ab");
  arc.Request("ab");
  for (const char* scan : {"uv", "wx", "yz"}) {
    arc.Put(scan);
    if (arc.size() > 4) arc.Evict(arc.size() - 4);
  }
  CHECK(arc.Order() == "zyba");
}

TEST_CASE("a ghost of a chunk asked for once makes the list of such chunks longer") {
  PolicyTester arc = Arc();
  arc.Put("ab");
  arc.Request("ab");
  arc.Put("xyz");
  CHECK(arc.Evict(1) == "z");
  CHECK(Target(arc) == 0);
  arc.Put("z");
  CHECK(Target(arc) == 1);
  CHECK(arc.Order() == "bazyx");  // z is in the list of chunks asked for again, which gives now
}

TEST_CASE("a ghost of a chunk asked for again makes the other list shorter") {
  PolicyTester arc = Arc();
  arc.Put("abcd");
  arc.Request("abcd");
  arc.Put("x");
  CHECK(arc.Evict(1) == "d");  // one of the first list is worth no more than the newcomer
  arc.Put("yz");
  CHECK(arc.Evict(1) == "x");
  arc.Put("x");
  CHECK(Target(arc) == 1);
  arc.Put("d");
  CHECK(Target(arc) == 0);
}

TEST_CASE("ARC remembers evicted chunks, not removed ones, and no more than there are chunks") {
  PolicyTester arc = Arc();
  arc.Put("abcdwxyz");
  arc.Erase("z");
  CHECK(arc.Evict(6) == "yxwdcb");
  arc.Put("z");
  CHECK(Target(arc) == 0);  // removed: as if it never was
  arc.Put("y");
  CHECK(Target(arc) == 0);  // its ghost was the oldest of too many
}

}  // namespace kvkeep
