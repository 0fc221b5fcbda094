// Properties of every eviction policy, whichever chunk it evicts first.
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/fakes/seeded_random.h"
#include "tests/tiers/policy/policy_tester.h"

namespace kvkeep {
namespace {

template <typename Test>
void ForEachPolicy(Test test) {
  for (const std::string& name : EvictionPolicyNames()) {
    CAPTURE(name);
    test(name);
  }
}

}  // namespace

TEST_CASE("an empty policy, of any kind, has no victim") {
  ForEachPolicy([](const std::string& name) {
    PolicyTester tester(name);
    CHECK(tester.Victim() == '-');
    tester.Request("...");
    CHECK(tester.Victim() == '-');
    CHECK(tester.Order() == "");
  });
}

TEST_CASE("what comes, and what a touch moves, has a recency above all before, in any policy") {
  ForEachPolicy([](const std::string& name) {
    PolicyTester tester(name);
    const auto recency = [&tester](char c) { return tester.Recency(c); };
    int moved = 0;
    for (const char c : std::string("abcdefgh")) {
      const int64_t newest = tester.policy().Newest();
      tester.Insert({c});
      CHECK(recency(c) > newest);
      CHECK(recency(c) <= tester.policy().Newest());
    }
    for (const char c : std::string("cacabdhc")) {
      const int64_t newest = tester.policy().Newest(), before = recency(c);
      tester.Request({c});
      moved += recency(c) != before;
      CHECK((recency(c) > newest || recency(c) == before));
      CHECK(recency(c) <= tester.policy().Newest());
    }
    CHECK(moved > 0);
  });
}

TEST_CASE("of a chain that came in one request the tail goes first, under any policy") {
  ForEachPolicy([](const std::string& name) {
    PolicyTester tester(name);
    tester.Put("abcdef");
    CHECK(tester.Evict(6) == "fedcba");
  });
}

TEST_CASE("a parent outlives its children where chains branch, but under arc") {
  // arc keeps chunks asked for once and chunks asked for again apart, and evicts from either: a
  // child that came once may be left without its parent.
  for (const std::string name : {"lru", "lfu", "reuse", "seconds"}) {
    CAPTURE(name);
    PolicyTester tester(name);
    tester.Put("abc");
    for (int i = 0; i < 30; ++i) {
      tester.Sleep(std::chrono::seconds(40));
      if (i == 0) tester.Ask("abd"), tester.Insert("d", 'b');
      tester.Request("abd");
    }
    tester.Put("xyz");
    const std::string gone = tester.Evict(7);
    CAPTURE(gone);
    const auto before = [&gone](char child, char parent) {
      return gone.find(child) < gone.find(parent);
    };
    CHECK((before('c', 'b') && before('d', 'b') && before('b', 'a')));
    CHECK((before('z', 'y') && before('y', 'x')));
  }
}

TEST_CASE("a transient chunk goes before all others, and the newest first, under any policy") {
  ForEachPolicy([](const std::string& name) {
    PolicyTester tester(name);
    tester.Put("abc");
    tester.Request("abc");
    tester.InsertTransient("xy");
    CHECK(tester.Evict(2) == "yx");
  });
}

TEST_CASE("no parked chunk is a victim, and unparked ones come first, as they were parked") {
  ForEachPolicy([](const std::string& name) {
    PolicyTester tester(name);
    tester.Put("abcd");
    CHECK(tester.ParkAll() == "dcba");
    CHECK(tester.Victim() == '-');
    CHECK(tester.size() == 4);
    tester.Put("x");
    CHECK(tester.Victim() == 'x');
    tester.Unpark("bcad");
    CHECK(tester.Evict(4) == "dcba");
    tester.Unpark("x");  // no-op
    CHECK(tester.Evict(1) == "x");
  });
}

TEST_CASE("a chunk touched while parked is not the next one when it is unparked") {
  ForEachPolicy([](const std::string& name) {
    PolicyTester tester(name);
    tester.Put("a");
    tester.Put("xyz");
    tester.Park("a");
    tester.Request("a");
    tester.Request("a");
    tester.Unpark("a");
    CHECK(tester.Victim() == 'z');
  });
}

TEST_CASE("an erased chunk leaves no trace in any policy, and its slot starts anew") {
  ForEachPolicy([](const std::string& name) {
    PolicyTester tester(name);
    tester.Put("abc");
    tester.Park("c");
    tester.Erase("acb");
    CHECK(tester.Victim() == '-');
    CHECK(tester.size() == 0);
    tester.Put("bc");
    CHECK(tester.Evict(2) == "cb");
  });
}

TEST_CASE("policies of any kind that share memory have chunks of their own") {
  ForEachPolicy([](const std::string& name) {
    const auto first = MakeEvictionPolicy(name, {.max_chunks = 64});
    const auto second =
        MakeEvictionPolicy(name, {.max_chunks = 64, .shares_memory_with = first.get()});
    for (const uint32_t slot : {0, 2, 4}) {
      first->OnInsert({.slot = ChunkSlot(slot), .fingerprint = Fingerprint(slot)}, {});
    }
    second->OnInsert({.slot = ChunkSlot(1), .fingerprint = Fingerprint(1)}, {});
    CHECK(first->size() == 3);
    CHECK(second->Victim() == ChunkSlot(1));
    second->OnErase(ChunkSlot(1), EvictionPolicy::EraseReason::kEvicted);
    CHECK_FALSE(second->Victim().has_value());
    CHECK(first->size() == 3);
    first->OnInsert({.slot = ChunkSlot(1), .fingerprint = Fingerprint(1)}, {});
    for (int i = 0; i < 4; ++i) {
      first->OnErase(*first->Victim(), EvictionPolicy::EraseReason::kEvicted);
    }
    CHECK_FALSE(first->Victim().has_value());
  });
}

TEST_CASE("any policy names each chunk that can go once, through a long random life") {
  ForEachPolicy([](const std::string& name) {
    constexpr uint32_t kSlots = 200;
    SeededRandom random(7);
    const auto policy = MakeEvictionPolicy(name, {.max_chunks = kSlots});
    std::set<uint32_t> in, parked;
    MonotonicTime now(0);
    for (int step = 0; step < 20'000; ++step) {
      now += std::chrono::milliseconds(random.Below(2'000));
      const auto slot = static_cast<uint32_t>(random.Below(kSlots));
      if (in.contains(slot)) {
        policy->OnRequest(
            std::vector<EvictionPolicy::ChainLink>{
                {.slot = ChunkSlot(slot), .fingerprint = Fingerprint(slot)}},
            now, EvictionPolicy::Slice::kFirst);
      } else {
        policy->OnInsert({.slot = ChunkSlot(slot), .fingerprint = Fingerprint(slot)}, now);
        in.insert(slot);
      }
      if (in.size() >= kSlots * 3 / 4 && random.Chance(0.7)) {
        REQUIRE(policy->HasVictim() == (parked.size() < in.size()));
        const auto victim = policy->Victim();
        REQUIRE(victim.has_value() == (parked.size() < in.size()));
        if (victim.has_value() && random.Chance(0.3)) {
          policy->Park(*victim);
          parked.insert(victim->value());
        } else if (victim.has_value()) {
          // A chunk touched while it was parked may be named again, to be parked again.
          if (parked.contains(victim->value())) {
            policy->Park(*victim);
          } else {
            policy->OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
            in.erase(victim->value());
          }
        }
      }
      if (!parked.empty() && (random.Chance(0.3) || parked.size() == in.size())) {
        policy->Unpark(ChunkSlot(*parked.begin()));
        parked.erase(parked.begin());
      }
      REQUIRE(policy->size() == in.size());
    }
    for (const uint32_t slot : parked) policy->Unpark(ChunkSlot(slot));
    while (!in.empty()) {
      const auto victim = policy->Victim();
      REQUIRE(victim.has_value());
      REQUIRE(in.erase(victim->value()) == 1);
      policy->OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
    }
    CHECK_FALSE(policy->Victim().has_value());
  });
}

}  // namespace kvkeep
