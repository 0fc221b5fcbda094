// A learner that serves several policies, falls behind, or works on another thread than they.
#include "tiers/policy/reuse_learner.h"

#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "tests/fakes/seeded_random.h"
#include "tiers/policy/reuse_policy.h"

namespace kvkeep {
namespace {

using Chain = std::vector<EvictionPolicy::ChainLink>;

Chain ChainOf(uint64_t first, uint64_t length) {
  Chain chain(length);
  for (uint64_t i = 0; i < length; ++i) chain[i].fingerprint = Fingerprint(first + i);
  return chain;
}

EvictionPolicy::NewChunk NewChunkOf(uint32_t slot, uint64_t print) {
  return {.slot = ChunkSlot(slot), .fingerprint = Fingerprint(print)};
}

// Two devices of one tier.
struct Pair {
  ReusePolicy first{{.max_chunks = 1'000}};
  ReusePolicy second{{.max_chunks = 1'000, .shares_memory_with = &first, .learns_with = &first}};
  ReuseLearner& learner = *first.learner();
  ReusePolicy& of(uint64_t n) { return n % 2 == 0 ? first : second; }
};

}  // namespace

TEST_CASE("policies that learn together have one learner, and each its own victims") {
  Pair pair;
  CHECK(pair.second.learner() == &pair.learner);
  for (uint32_t i = 0; i < 400; ++i) pair.of(i).OnInsert(NewChunkOf(i, i), {});
  CHECK(pair.first.size() == 200);
  for (uint32_t i = 0; i < 400; ++i) {
    const auto victim = pair.of(i).Victim();
    REQUIRE(victim.has_value());
    REQUIRE(victim->value() % 2 == i % 2);
    pair.of(i).OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
  }
  CHECK_FALSE(pair.first.Victim().has_value());
  CHECK_FALSE(pair.second.Victim().has_value());
}

TEST_CASE("a tier on two devices gives up what it would give up on one") {
  // Sessions come back; chunks that pass between them do not. Half of each chain is on each device.
  Pair pair;
  constexpr uint64_t kChunks = 150, kSessions = 20;
  std::map<uint64_t, uint32_t> in;  // print: slot
  std::vector<uint32_t> free;
  for (uint32_t i = 400; i-- > 0;) free.push_back(i);
  uint64_t once = 1'000'000, hits = 0, asked = 0;
  const auto ask = [&](uint64_t first, uint64_t length, MonotonicTime now, bool counts) {
    Chain chain = ChainOf(first, length);
    for (const uint64_t device : {0, 1}) {
      Chain own = chain;
      for (auto& link : own) {
        const auto found = in.find(link.fingerprint.value());
        if (found != in.end() && found->second % 2 == device) link.slot = ChunkSlot(found->second);
      }
      pair.of(device).OnRequest(own, now, EvictionPolicy::Slice::kFirst);
    }
    pair.learner.Tell(chain, now);
    CatchUp(pair.learner);
    for (const auto& link : chain) {
      const uint64_t print = link.fingerprint.value();
      asked += counts;
      hits += counts && in.contains(print);
      if (in.contains(print)) continue;
      const uint32_t slot = free.back();
      free.pop_back();
      pair.of(slot).OnInsert(NewChunkOf(slot, print), now);
      in[print] = slot;
      if (pair.of(slot).size() <= kChunks / 2) continue;
      const auto victim = pair.of(slot).Victim();
      REQUIRE(victim.has_value());
      REQUIRE(victim->value() % 2 == slot % 2);
      pair.of(slot).OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
      free.insert(free.begin(), victim->value());
      std::erase_if(in, [&](const auto& entry) { return entry.second == victim->value(); });
    }
  };
  MonotonicTime now(0);
  for (int round = 0; round < 60; ++round) {
    for (uint64_t s = 0; s < kSessions; ++s) {
      now += std::chrono::seconds(3);
      ask(1'000 * s, 6, now, round >= 30);
      ask(once, 10, now, false);
      once += 10;
    }
  }
  // lru would hold the last 150 of 320 in a round: none that come back.
  CHECK(hits > asked / 2);
}

TEST_CASE("a learner skips and counts what it is told beyond its limits, and its policy goes on") {
  ReusePolicy policy({.max_chunks = 1'000});
  ReuseLearner& learner = *policy.learner();
  const Chain chain = ChainOf(0, 512);
  constexpr uint64_t kFit = ReuseLearner::kMostLinks / 512;
  for (uint64_t i = 0; i < kFit + 10; ++i) learner.Tell(chain, std::chrono::seconds(i));
  CHECK(learner.skipped() == 10);
  // Chunks come and go while the learner does not work.
  for (uint64_t i = 0; i < ReuseLearner::kMostTold; ++i) {
    const auto slot = static_cast<uint32_t>(i % 100);
    if (i >= 100) {
      const auto victim = policy.Victim();
      REQUIRE(victim == ChunkSlot(slot));  // the oldest
      policy.OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
    }
    policy.OnInsert(NewChunkOf(slot, i), {});
  }
  CHECK(learner.skipped() > ReuseLearner::kMostTold / 2);
  CatchUp(learner);
  CHECK(learner.idle());
  while (policy.size() > 0) {
    policy.OnErase(*policy.Victim(), EvictionPolicy::EraseReason::kEvicted);
  }
}

TEST_CASE("a learner stops at many judgements until they are followed") {
  ReusePolicy policy({.max_chunks = 100'000});
  ReuseLearner& learner = *policy.learner();
  for (uint64_t i = 0; i < 200; ++i) {
    learner.Tell(ChainOf(1'000 * i, 400), std::chrono::seconds(i));  // each chunk comes in
  }
  CHECK(learner.Work(ChainLearner::kWhole));
  CHECK(learner.Work(ChainLearner::kWhole));  // does nothing
  const size_t judged = learner.Follow(SIZE_MAX);
  CHECK(judged >= ReuseLearner::kMostJudged);
  CHECK(judged < ReuseLearner::kMostJudged + 1'000);
  CatchUp(learner);
  CHECK(learner.idle());
  CHECK(learner.skipped() == 0);
}

TEST_CASE("a tenant that only asks takes no hits of one that shares its memory") {
  const auto hits = [](bool beside_another) {
    ReusePolicy asks({.max_chunks = 20'000});
    ReusePolicy policy({.max_chunks = 20'000, .shares_memory_with = &asks});
    if (beside_another) {
      for (uint64_t i = 0; i < 400; ++i) {
        TellRequest(asks, ChainOf(1'000'000 + 512 * i, 512), std::chrono::seconds(i));
      }
    }
    // Sessions come back; chunks that pass between them do not.
    constexpr uint64_t kChunks = 150, kSessions = 20;
    std::map<uint64_t, uint32_t> in;
    std::vector<uint32_t> free;
    for (uint32_t i = 400; i-- > 0;) free.push_back(i);
    uint64_t once = 2'000'000, found = 0;
    MonotonicTime now = std::chrono::seconds(1'000);
    const auto ask = [&](uint64_t first, uint64_t length) {
      Chain chain = ChainOf(first, length);
      for (auto& link : chain) {
        const auto known = in.find(link.fingerprint.value());
        if (known != in.end()) link.slot = ChunkSlot(known->second);
      }
      TellRequest(policy, chain, now);
      for (const auto& link : chain) {
        if (!in.emplace(link.fingerprint.value(), free.back()).second) continue;
        policy.OnInsert(NewChunkOf(free.back(), link.fingerprint.value()), now);
        free.pop_back();
        if (policy.size() <= kChunks) continue;
        const auto victim = policy.Victim();
        policy.OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
        free.insert(free.begin(), victim->value());
        std::erase_if(in, [&](const auto& entry) { return entry.second == victim->value(); });
      }
    };
    for (int round = 0; round < 40; ++round) {
      for (uint64_t s = 0; s < kSessions; ++s) {
        now += std::chrono::seconds(3);
        for (uint64_t i = 0; i < 6; ++i) found += round >= 20 && in.contains(1'000 * s + i);
        ask(1'000 * s, 6);
        ask(once, 10);
        once += 10;
      }
    }
    return found;
  };
  const uint64_t alone = hits(false), beside = hits(true);
  CHECK(alone > 1'000);
  CHECK(beside > alone * 9 / 10);
}

TEST_CASE("a learner works on a thread of its own while its policies change") {
  Pair pair;
  Mutex owner;
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    while (!stop) {
      while (pair.learner.Work(16)) {
        MutexLock lock(&owner);
        pair.learner.Follow(32);
      }
      static_cast<void>(pair.learner.Save());
    }
  });
  SeededRandom random(31);
  std::map<uint32_t, uint64_t> in;
  for (int step = 0; step < 20'000; ++step) {
    const MonotonicTime now = std::chrono::seconds(step);
    MutexLock lock(&owner);
    const auto slot = static_cast<uint32_t>(random.Below(600));
    if (random.Chance(0.3)) pair.learner.Tell(ChainOf(100 * random.Below(30), 20), now);
    if (!in.contains(slot)) {
      in[slot] = 100 * random.Below(30) + random.Below(20);
      pair.of(slot).OnInsert(NewChunkOf(slot, in[slot]), now);
    } else if (random.Chance(0.3)) {
      pair.of(slot).OnErase(ChunkSlot(slot), EvictionPolicy::EraseReason::kRemoved);
      in.erase(slot);
    }
    if (pair.of(slot).size() > 100) {
      const auto victim = pair.of(slot).Victim();
      REQUIRE(victim.has_value());
      REQUIRE(in.erase(victim->value()) == 1);
      pair.of(slot).OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
    }
  }
  stop = true;
  worker.join();
  CatchUp(pair.learner);
  CHECK(pair.first.size() + pair.second.size() == in.size());
  for (const uint64_t device : {0, 1}) {
    ReusePolicy& policy = pair.of(device);
    while (policy.size() > 0) {
      const auto victim = policy.Victim();
      REQUIRE(victim.has_value());
      REQUIRE(in.erase(victim->value()) == 1);
      policy.OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
    }
  }
}

}  // namespace kvkeep
