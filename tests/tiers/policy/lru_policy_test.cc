#include "tiers/policy/lru_policy.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/tiers/policy/policy_tester.h"

namespace kvkeep {
namespace {

PolicyTester Lru() { return PolicyTester("lru"); }

}  // namespace

TEST_CASE("a policy is made by its name, and another name makes none") {
  const PolicyOptions options{.max_chunks = 10};
  for (const std::string& name : EvictionPolicyNames()) {
    const auto policy = MakeEvictionPolicy(name, options);
    REQUIRE(policy != nullptr);
    CHECK(policy->size() == 0);
  }
  CHECK(MakeEvictionPolicy("lru", options) != nullptr);
  CHECK(MakeEvictionPolicy("LRU", options) == nullptr);
  CHECK(MakeEvictionPolicy("", options) == nullptr);
}

TEST_CASE("an empty policy has no victim") {
  PolicyTester lru = Lru();
  CHECK(lru.Victim() == '-');
  CHECK(lru.Order() == "");
  lru.Request("");
  lru.Request("...");
  CHECK(lru.Victim() == '-');
}

TEST_CASE("a chain is inserted head first, and yet its head is the youngest") {
  PolicyTester lru = Lru();
  lru.Put("abcd");
  CHECK(lru.Order() == "dcba");
  lru.Put("xyz");
  CHECK(lru.Order() == "dcbazyx");
  CHECK(lru.Victim() == 'd');
  CHECK(lru.size() == 7);
}

TEST_CASE("a request touches what is present, tail first") {
  PolicyTester lru = Lru();
  lru.Put("abcd");
  lru.Put("xyz");
  lru.Request("ab..");
  CHECK(lru.Order() == "dczyxba");
  lru.Request("x.z");
  CHECK(lru.Order() == "dcybazx");
  lru.Request("aa");  // one chunk twice in a chain is odd, but harmless
  CHECK(lru.Order() == "dcybzxa");
}

TEST_CASE("a child goes just behind its parent, between it and the older ones") {
  PolicyTester lru = Lru();
  lru.Put("ab");
  lru.Put("xy");
  lru.Request("ab...");
  CHECK(lru.Order() == "yxba");
  lru.Insert("cde", 'b');
  CHECK(lru.Order() == "yxedcba");
  lru.Request("x");
  lru.Insert("f", 'e');  // the end of the chain comes a request later
  CHECK(lru.Order() == "yfedcbax");
}

TEST_CASE("the parts of a key stay together in the order of the chain") {
  PolicyTester lru = Lru();
  lru.Put("aAbBcC");  // keys a, b, c with two parts each
  lru.Put("x");
  CHECK(lru.Order() == "CcBbAax");
  lru.Request("aAbB");
  CHECK(lru.Order() == "CcxBbAa");
}

TEST_CASE("a parent counts as touched lately for 64 requests, its own included") {
  PolicyTester lru = Lru();
  lru.Put("a");
  lru.Pass(LruPolicy::kLatelyRequests - 2);
  lru.Put("x");
  lru.Insert("b", 'a');  // the 64th request
  CHECK(lru.Order() == "bax");
  lru.Pass(1);
  lru.Insert("c", 'a');  // the 65th: c would be among the first to go
  CHECK(lru.Order() == "baxc");
}

TEST_CASE("a chunk placed behind its parent has the parent's age, so the chain cannot sink") {
  PolicyTester lru = Lru();
  lru.Put("a");
  lru.Put("x");
  lru.Pass(LruPolicy::kLatelyRequests - 2);
  lru.Insert("b", 'a');
  CHECK(lru.Order() == "bax");
  lru.Pass(1);
  lru.Insert("c", 'b');  // b came a request ago, but its place is as old as a
  CHECK(lru.Order() == "baxc");
}

TEST_CASE("transient chunks go first, the newest of them foremost, until they are touched") {
  PolicyTester lru = Lru();
  lru.Put("ab");
  lru.InsertTransient("xy");
  CHECK(lru.Order() == "yxba");
  lru.InsertTransient("z");
  CHECK(lru.Order() == "zyxba");
  lru.Insert("c", 'x');  // has no place among the recent behind a parent that is next to go
  CHECK(lru.Order() == "zyxbac");
  lru.Request("xy");
  CHECK(lru.Order() == "zbacyx");
}

TEST_CASE("an erased chunk leaves no trace, and its slot starts anew") {
  PolicyTester lru = Lru();
  lru.Put("abc");
  lru.Erase("b");
  CHECK(lru.Order() == "ca");
  lru.Erase("ca");
  CHECK(lru.size() == 0);
  CHECK(lru.Victim() == '-');
  lru.Put("b");
  lru.Park("b");
  lru.Erase("b");
  lru.Put("ab");
  CHECK(lru.Order() == "ba");
  CHECK(lru.Victim() == 'b');  // not parked any more
}

TEST_CASE("a parked chunk is no victim, and is the next one again when it is unparked") {
  PolicyTester lru = Lru();
  lru.Put("abc");
  lru.Park("c");
  CHECK(lru.Victim() == 'b');
  CHECK(lru.Order() == "cba");
  CHECK(lru.size() == 3);
  lru.Unpark("c");
  CHECK(lru.Victim() == 'c');
  lru.Unpark("c");  // no-op
  CHECK(lru.Order() == "cba");
  CHECK(lru.ParkAll() == "cba");
  CHECK(lru.Victim() == '-');
  CHECK(lru.Order() == "cba");
}

TEST_CASE("unparked chunks keep the order they had, whatever order they are released in") {
  for (const std::string released : {"abcdef", "fedcba", "cfaebd"}) {
    CAPTURE(released);
    PolicyTester lru = Lru();
    lru.Put("abcdef");
    REQUIRE(lru.ParkAll() == "fedcba");
    lru.Put("x");
    lru.Unpark(released);
    CHECK(lru.Order() == "fedcbax");
    CHECK(lru.ParkAll() == "fedcbax");  // also when it happens again
    lru.Unpark("x" + released);
    CHECK(lru.Order() == "fedcbax");
  }
}

TEST_CASE("a touch while parked decides where the chunk goes afterwards") {
  PolicyTester lru = Lru();
  lru.Put("abc");
  lru.Park("c");
  lru.Put("x");
  lru.Request("abc");
  lru.Put("y");
  CHECK(lru.Victim() == 'x');
  lru.Unpark("c");
  CHECK(lru.Order() == "xcbay");
}

TEST_CASE("a chunk touched while parked is passed over when its turn comes, until it is unparked") {
  PolicyTester lru = Lru();
  lru.Put("ab");
  lru.Park("b");
  lru.Request("ab");
  lru.Put("x");
  CHECK(lru.Order() == "bax");
  CHECK(lru.Victim() == 'a');
  lru.Request("a");
  CHECK(lru.Victim() == 'x');
  lru.Unpark("b");
  CHECK(lru.Victim() == 'b');
  CHECK(lru.Order() == "bxa");
}

TEST_CASE("a child of a parked parent is placed behind it when the parent was touched meanwhile") {
  PolicyTester lru = Lru();
  lru.Put("a");
  lru.Park("a");
  lru.Insert("b", 'a');  // a has no place now
  CHECK(lru.Order() == "ab");
  lru.Request("a..");
  lru.Insert("c", 'a');
  CHECK(lru.Order() == "bca");
}

TEST_CASE("transient chunks stay in front of unparked ones when they are parked themselves") {
  PolicyTester lru = Lru();
  lru.Put("abc");
  lru.InsertTransient("xy");
  CHECK(lru.ParkAll() == "yxcba");
  lru.Unpark("cx");
  CHECK(lru.Order() == "ybaxc");
  lru.Unpark("aby");
  CHECK(lru.Order() == "yxcba");
}

TEST_CASE("a run of many unparked chunks keeps its order, released from either end") {
  constexpr uint32_t kChunks = 4 * LruPolicy::kUnparkSteps;
  for (const bool head_first : {false, true}) {
    LruPolicy policy({.max_chunks = kChunks});
    std::vector<ChunkSlot> parked;
    for (uint32_t i = 0; i < kChunks; ++i) policy.OnInsert({.slot = ChunkSlot(i)}, {});
    const std::vector<ChunkSlot> order = policy.EvictionOrder();
    for (const ChunkSlot slot : order) policy.Park(slot);
    std::vector<ChunkSlot> released = order;
    if (head_first) std::reverse(released.begin(), released.end());
    for (const ChunkSlot slot : released) policy.Unpark(slot);
    CHECK(policy.EvictionOrder() == order);
  }
}

TEST_CASE("a run released head first keeps its order while victims are taken from it") {
  constexpr uint32_t kChunks = 4 * LruPolicy::kUnparkSteps;
  LruPolicy policy({.max_chunks = kChunks});
  for (uint32_t i = 0; i < kChunks; ++i) policy.OnInsert({.slot = ChunkSlot(i)}, {});
  for (uint32_t i = 0; i < kChunks; ++i) policy.Park(ChunkSlot(i));
  std::vector<ChunkSlot> left;
  for (uint32_t i = kChunks; i-- > 0;) {  // the youngest is the head
    policy.Unpark(ChunkSlot(i));
    REQUIRE(policy.Victim() == ChunkSlot(i));
    if (i % 2 == 1) {
      policy.OnErase(ChunkSlot(i), EvictionPolicy::EraseReason::kEvicted);
    } else {
      left.insert(left.begin(), ChunkSlot(i));
    }
  }
  CHECK(policy.EvictionOrder() == left);
}

TEST_CASE("policies that share memory have orders, and victims, of their own") {
  const auto first = MakeEvictionPolicy("lru", {.max_chunks = 16});
  const auto second =
      MakeEvictionPolicy("lru", {.max_chunks = 16, .shares_memory_with = first.get()});
  const auto insert = [](EvictionPolicy& policy, std::initializer_list<uint32_t> slots) {
    for (const uint32_t slot : slots) {
      policy.OnInsert({.slot = ChunkSlot(slot), .blocks = 1}, MonotonicTime(0));
    }
  };
  insert(*first, {0, 2, 4});
  insert(*second, {1, 3, 15});
  CHECK(first->Victim() == ChunkSlot(0));
  CHECK(second->Victim() == ChunkSlot(1));
  second->Park(ChunkSlot(1));
  second->OnErase(ChunkSlot(3), EvictionPolicy::EraseReason::kEvicted);
  CHECK(first->Victim() == ChunkSlot(0));
  CHECK(second->Victim() == ChunkSlot(15));
  insert(*first, {3});  // a slot that was the other's
  first->OnErase(ChunkSlot(0), EvictionPolicy::EraseReason::kEvicted);
  first->OnErase(ChunkSlot(2), EvictionPolicy::EraseReason::kEvicted);
  first->OnErase(ChunkSlot(4), EvictionPolicy::EraseReason::kEvicted);
  CHECK(first->Victim() == ChunkSlot(3));
  CHECK(first->size() == 1);
  CHECK(second->size() == 2);
}

}  // namespace kvkeep
