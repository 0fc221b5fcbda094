#include "tiers/policy/reuse_policy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/fakes/seeded_random.h"
#include "tests/tiers/policy/policy_tester.h"

namespace kvkeep {
namespace {

using Slice = EvictionPolicy::Slice;

using Key = ShadowTier::Key;

std::vector<Key> Keys(std::initializer_list<uint64_t> ids) {
  std::vector<Key> keys;
  for (const uint64_t id : ids) keys.push_back(FingerprintTable::KeyOf(Fingerprint(id), 1));
  return keys;
}

// Plays this many sessions. Each asks for its chain again `gap` later, longer by one, some times;
// chunks that are asked for once pass in between. Returns the hits at the heads of the sessions.
uint64_t PlaySessions(ShadowTier& tier, int rounds) {
  constexpr uint64_t kSessions = 20;
  uint64_t hits = 0, once = 1'000'000;
  MonotonicTime now(0);
  for (int round = 0; round < rounds; ++round) {
    for (uint64_t s = 0; s < kSessions; ++s) {
      now += std::chrono::seconds(3);
      std::vector<Key> chain;
      for (uint64_t i = 0; i < 4 + static_cast<uint64_t>(round % 10); ++i) {
        const uint64_t session = s + kSessions * static_cast<uint64_t>(round / 10);
        chain.push_back(FingerprintTable::KeyOf(Fingerprint(session * 1000 + i), 1));
      }
      hits += tier.Request(chain, now);
      for (Key& key : chain) key = FingerprintTable::KeyOf(Fingerprint(++once), 1);
      tier.Request(chain, now);
      tier.TakeChanges();
    }
  }
  return hits;
}

}  // namespace

TEST_CASE("a shadow tier brings what a request asks for, and tells what it held") {
  for (const bool arc : {false, true}) {
    CAPTURE(arc);
    ShadowHazard hazard(100, nullptr);
    ShadowArc shadow_arc(100, nullptr);
    ShadowTier& tier = arc ? static_cast<ShadowTier&>(shadow_arc) : hazard;
    tier.SetCapacity(4);
    CHECK(tier.Request(Keys({1, 2, 3}), MonotonicTime(0)) == 0);
    CHECK(tier.Request(Keys({1, 2, 9}), MonotonicTime(1)) == 2);
    CHECK(tier.Request(Keys({8, 2, 3}), MonotonicTime(2)) == 0);
    const auto changes = tier.TakeChanges();
    CHECK(std::count_if(changes.begin(), changes.end(),
                        [](const auto& change) { return !change.held; }) == 1);
    CHECK(changes.size() >= 5);  // with those that came in
    CHECK(tier.Holds(Keys({2})[0]));
    tier.Drop(Keys({2})[0], false);
    CHECK_FALSE(tier.Holds(Keys({2})[0]));
    tier.Request(Keys({2, 2, 1, 1}), MonotonicTime(3));  // odd, but harmless
    CHECK(tier.Holds(Keys({2})[0]));
    CHECK(tier.Request(Keys({2, 2}), MonotonicTime(3)) == 2);
  }
}

TEST_CASE("a shadow tier never holds more than its capacity, and a smaller one is reached") {
  for (const bool arc : {false, true}) {
    CAPTURE(arc);
    ShadowHazard hazard(1000, nullptr);
    ShadowArc shadow_arc(1000, nullptr);
    ShadowTier& tier = arc ? static_cast<ShadowTier&>(shadow_arc) : hazard;
    SeededRandom random(5);
    std::set<uint64_t> held;  // by what it told
    tier.SetCapacity(200);
    MonotonicTime now(0);
    for (int step = 0; step < 5'000; ++step) {
      if (step == 2'500) tier.SetCapacity(50);
      now += std::chrono::milliseconds(random.Below(60'000));
      std::vector<Key> chain;
      const uint64_t first = random.Below(60) * 100;
      for (uint64_t i = random.Below(20); i > 0; --i) {
        chain.push_back(FingerprintTable::KeyOf(Fingerprint(first + chain.size()), 1));
      }
      tier.Request(chain, now);
      for (const ShadowTier::Change& change : tier.TakeChanges()) {
        if (change.held)
          held.insert(change.chunk.bits);
        else
          held.erase(change.chunk.bits);
      }
      const size_t most = step < 2'500 ? 200 : step < 3'500 ? 1000 : 50;
      REQUIRE(held.size() <= most);
      const auto victim = tier.Victim();
      REQUIRE(victim.has_value() == !held.empty());
      REQUIRE((!victim.has_value() || held.contains(victim->bits)));
      if (victim.has_value() && random.Chance(0.1)) {
        tier.Drop(*victim, random.Chance(0.5));
        held.erase(victim->bits);
      }
    }
  }
}

TEST_CASE(
    "a chunk outlives its children in the hazard shadow, however its own group is thought of") {
  // Sessions that branch off each other at any depth: the parent of a chunk has a smaller number,
  // and all parents are asked for with it.
  ShadowHazard tier(1000, nullptr);
  constexpr uint32_t kCapacity = 120;
  tier.SetCapacity(kCapacity);
  SeededRandom random(17);
  std::vector<uint64_t> parents = {0};  // by chunk; 0 is no chunk
  uint64_t generation = 0, with_parents = 0;
  const auto key = [&generation](uint64_t chunk) {
    return FingerprintTable::KeyOf(Fingerprint(1000 * generation + chunk), 1);
  };
  const auto chain_to = [&](uint64_t chunk) {
    std::vector<Key> chain;
    for (; chunk != 0; chunk = parents[chunk]) chain.insert(chain.begin(), key(chunk));
    return chain;
  };
  MonotonicTime now(0);
  for (int step = 0; step < 6'000; ++step) {
    now += std::chrono::milliseconds(random.Below(20'000));
    // Few are asked for often, and some of those have ends that were asked for once.
    uint64_t chunk = random.Chance(0.5) ? random.Below(parents.size())
                                        : random.Below(std::min<uint64_t>(parents.size(), 30));
    for (uint64_t more = random.Below(4); more > 0; --more) {
      parents.push_back(chunk);
      chunk = parents.size() - 1;
    }
    std::vector<Key> chain = chain_to(chunk);
    // An engine that has the head in its own memory asks for the rest.
    if (random.Chance(0.2) && chain.size() > 3 && tier.Holds(chain[2])) {
      chain.erase(chain.begin(), chain.begin() + 2);
    }
    tier.Request(chain, now);
    if (random.Chance(0.1)) {
      const std::optional<Key> victim = tier.Victim();
      if (victim.has_value()) tier.Drop(*victim, true);
    }
    for (uint64_t c = 1; c < parents.size(); ++c) {
      if (parents[c] == 0 || !tier.Holds(key(c))) continue;
      ++with_parents;
      if (tier.Holds(key(parents[c]))) continue;
      FAIL("step " << step << ": " << c << " is held, its parent " << parents[c] << " is not");
    }
    if (parents.size() <= 600) continue;
    parents.resize(1);
    ++generation;
  }
  CHECK(with_parents > 100'000);
}

TEST_CASE("chunks that were asked for as each other's parents can still go") {
  ShadowHazard tier(100, nullptr);
  tier.SetCapacity(4);
  tier.Request(Keys({1, 2}), MonotonicTime(0));
  tier.Request(Keys({2, 1}), MonotonicTime(1));
  tier.Request(Keys({3, 4, 3}), MonotonicTime(2));
  for (int i = 0; i < 4; ++i) {
    const std::optional<Key> victim = tier.Victim();
    REQUIRE(victim.has_value());
    tier.Drop(*victim, true);
  }
  CHECK_FALSE(tier.Victim().has_value());
}

TEST_CASE("the hazard shadow learns to let through what is asked for once") {
  constexpr uint32_t kCapacity = 150;  // all sessions at their longest are 260
  ShadowHazard hazard(kCapacity, nullptr);
  ShadowArc arc(kCapacity, nullptr);
  hazard.SetCapacity(kCapacity);
  arc.SetCapacity(kCapacity);
  const uint64_t of_hazard = PlaySessions(hazard, 100);
  const uint64_t of_arc = PlaySessions(arc, 100);
  CHECK(of_hazard > of_arc + of_arc / 5);
}

TEST_CASE("where seconds count, a long chain outlives a short one of its age") {
  const auto chain_of = [](uint64_t first, uint64_t length) {
    std::vector<Key> chain;
    for (uint64_t i = 0; i < length; ++i) {
      chain.push_back(FingerprintTable::KeyOf(Fingerprint(first + i), 1));
    }
    return chain;
  };
  const std::vector<Key> dear = chain_of(0, 300), cheap = chain_of(1'000, 20);
  for (const Objective objective : {Objective::kHits, Objective::kSeconds}) {
    ShadowHazard hazard(1'000, nullptr, objective);
    hazard.Request(dear, std::chrono::seconds(100));
    hazard.Request(cheap, std::chrono::seconds(101));
    hazard.Request(chain_of(2'000, 1), std::chrono::seconds(200));
    // None has come back, so all are alike, but for their length; the oldest would go first.
    const auto victim = hazard.Victim();
    REQUIRE(victim.has_value());
    CHECK(victim->bits == (objective == Objective::kHits ? dear : cheap).back().bits);
  }
}

TEST_CASE("reuse gives up a newcomer that its leader would not have let in") {
  PolicyTester tester("reuse");
  tester.Put("abcd");
  tester.Request("abcd");
  CHECK(tester.Evict(1) == "d");
  // Three fit: a chain of five keeps its head at most, and the rest goes at once.
  tester.Ask("vwxyz");
  char parent = '-';
  for (const char c : std::string("vwx")) {
    tester.Insert(std::string(1, c), parent);
    parent = c;
    if (tester.Evict(1) == std::string(1, c)) return;
  }
  tester.Insert("y", 'x');
  CHECK(tester.Evict(1) == "y");
}

TEST_CASE("reuse keeps chains apart whose parts are told in turns, with an insert in between") {
  ReusePolicy whole({.max_chunks = 1000}), parts({.max_chunks = 1000});
  const auto chain_of = [](uint64_t session, uint64_t length) {
    std::vector<EvictionPolicy::ChainLink> chain(length);
    for (uint64_t i = 0; i < length; ++i) chain[i].fingerprint = Fingerprint(100 * session + i);
    return chain;
  };
  for (uint32_t step = 0; step < 400; ++step) {
    const MonotonicTime now = std::chrono::seconds(20 * step);
    const auto a = chain_of(step % 7, 8 + step % 50), b = chain_of(10 + step % 5, 20);
    const EvictionPolicy::NewChunk chunk{.slot = ChunkSlot(step),
                                         .fingerprint = Fingerprint(10'000 + step)};
    whole.OnInsert(chunk, now);
    REQUIRE(whole.Victim().has_value());  // it may drop what is in the shadows alone
    TellRequest(whole, a, now);
    TellRequest(whole, b, now);
    parts.OnRequest({}, now, Slice::kFirst);
    parts.OnRequest(std::span(a).subspan(6), now, Slice::kNext);
    parts.OnRequest({}, now, Slice::kFirst);
    parts.OnRequest(std::span(b).subspan(5), now, Slice::kNext);
    parts.OnInsert(chunk, now);
    REQUIRE(parts.Victim().has_value());
    parts.OnRequest(std::span(a).first(6), now, Slice::kNext);
    parts.OnRequest(std::span(b).first(5), now, Slice::kNext);
    parts.learner()->Tell(a, now);
    parts.learner()->Tell(b, now);
    CatchUp(*parts.learner());
    if (step < 50) continue;
    const auto victim = whole.Victim();
    REQUIRE(parts.Victim() == victim);
    whole.OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
    parts.OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
  }
  CHECK(parts.learner()->Save() == whole.learner()->Save());
}

TEST_CASE("a chain that reuse is told in parts, from its tail, is one chain") {
  constexpr uint32_t kCapacity = 120;
  ReusePolicy whole({.max_chunks = 1000}), parts({.max_chunks = 1000});
  SeededRandom random(23);
  std::set<uint64_t> in;  // of both
  for (int step = 0; step < 3'000; ++step) {
    const MonotonicTime now = std::chrono::seconds(7 * step);
    const uint64_t session = random.Below(25);
    std::vector<EvictionPolicy::ChainLink> chain;
    for (uint64_t i = 0; i < 2 + random.Below(30); ++i) {
      const uint64_t id = 40 * session + i;
      chain.push_back({.slot = in.contains(id) ? ChunkSlot(static_cast<uint32_t>(id)) : kNoSlot,
                       .fingerprint = Fingerprint(id)});
    }
    TellRequest(whole, chain, now);
    parts.OnRequest({}, now, Slice::kFirst);
    for (size_t end = chain.size(); end > 0;) {
      const size_t begin = end - std::min<size_t>(end, 4);
      const auto part = std::span(chain).subspan(begin, end - begin);
      parts.OnRequest(part, now, Slice::kNext);
      end = begin;
    }
    parts.learner()->Tell(chain, now);
    while (parts.learner()->Work(1)) parts.learner()->Follow(1);
    CatchUp(*parts.learner());
    for (size_t i = 0; i < chain.size(); ++i) {
      const uint64_t id = 40 * session + i;
      if (!in.insert(id).second) continue;
      const EvictionPolicy::NewChunk chunk{.slot = ChunkSlot(static_cast<uint32_t>(id)),
                                           .fingerprint = Fingerprint(id)};
      whole.OnInsert(chunk, now);
      parts.OnInsert(chunk, now);
      if (in.size() <= kCapacity) continue;
      const auto victim = whole.Victim();
      REQUIRE(victim.has_value());
      REQUIRE(parts.Victim() == victim);
      in.erase(victim->value());
      whole.OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
      parts.OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
    }
  }
  CHECK(parts.learner()->Save() == whole.learner()->Save());
}

TEST_CASE("a slice of a play is short, however long the chain is and whatever it brings") {
  ReusePolicy policy({.max_chunks = 4'000});
  for (uint32_t i = 0; i < 1'000; ++i) {
    policy.OnInsert({.slot = ChunkSlot(i), .fingerprint = Fingerprint(1'000'000 + i)}, {});
  }
  policy.OnErase(ChunkSlot(0), EvictionPolicy::EraseReason::kEvicted);  // so it has a capacity
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<EvictionPolicy::ChainLink> chain;
    for (uint64_t i = 0; i < ChainLearner::kLongestChain; ++i) {
      chain.push_back({.fingerprint = Fingerprint(round / 2 * 1'000 + i)});
    }
    CatchUp(*policy.learner());
    policy.learner()->Tell(chain, std::chrono::seconds(30 * round));
    size_t slices = 1;
    while (policy.learner()->Work(16)) ++slices;
    CHECK(slices > chain.size() / 16 / 2);
    CHECK(slices < chain.size() / 16 * 8);
  }
}

TEST_CASE("plays of a shadow may be mixed, dropped, and chunks come and go between their slices") {
  constexpr uint32_t kCapacity = 150;
  ShadowHazard hazard(400, nullptr);
  ShadowArc arc(400, nullptr);
  SeededRandom random(29);
  struct Request {
    std::vector<Key> chain;
    ShadowHazard::Playing in_hazard;
    ShadowArc::Playing in_arc;
  };
  std::vector<std::unique_ptr<Request>> requests;
  MonotonicTime now(0);
  const auto any_key = [&random] {
    return FingerprintTable::KeyOf(Fingerprint(100 * random.Below(30) + random.Below(20)), 1);
  };
  hazard.SetCapacity(kCapacity);
  arc.SetCapacity(kCapacity);
  uint64_t ended = 0;
  for (int step = 0; step < 60'000; ++step) {
    if (random.Chance(0.3)) now += std::chrono::milliseconds(random.Below(20'000));
    if (requests.size() < 6) {
      auto request = std::make_unique<Request>();
      const uint64_t first = 100 * random.Below(30);
      for (uint64_t i = random.Below(60); i > 0; --i) {
        const uint64_t id = first + request->chain.size();
        request->chain.push_back(FingerprintTable::KeyOf(Fingerprint(id), 1));
      }
      request->in_hazard = {.chain = request->chain, .now = now};
      request->in_arc = {.chain = request->chain, .now = now};
      requests.push_back(std::move(request));
    }
    const size_t at = random.Below(requests.size());
    Request& request = *requests[at];
    ShadowTier::Steps of_hazard = static_cast<int>(random.Below(40)), of_arc = of_hazard;
    const bool more_hazard = hazard.Play(request.in_hazard, of_hazard);
    const bool more_arc = arc.Play(request.in_arc, of_arc);
    const bool over = !more_hazard && !more_arc;
    ended += over;
    if (over || random.Chance(0.002)) {
      requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (ShadowTier* tier : {static_cast<ShadowTier*>(&hazard), static_cast<ShadowTier*>(&arc)}) {
      if (random.Chance(0.1)) tier->Drop(any_key(), random.Chance(0.5));
      if (random.Chance(0.1)) tier->Bring(any_key(), any_key(), now);
      if (random.Chance(0.1) && tier->Victim().has_value()) tier->Drop(*tier->Victim(), true);
    }
  }
  CHECK(ended > 1'000);
  for (ShadowTier* tier : {static_cast<ShadowTier*>(&hazard), static_cast<ShadowTier*>(&arc)}) {
    uint32_t held = 0;
    for (; tier->Victim().has_value(); ++held) {
      const Key victim = *tier->Victim();
      REQUIRE(tier->Holds(victim));
      tier->Drop(victim, true);
      REQUIRE_FALSE(tier->Holds(victim));
    }
    CHECK(held > kCapacity / 2);
    CHECK(held <= kCapacity);
  }
}

TEST_CASE("what reuse has learned goes to another one; nothing else does") {
  ReusePolicy learned({.max_chunks = 100}), other({.max_chunks = 100});
  std::vector<EvictionPolicy::ChainLink> chain;
  for (uint64_t i = 0; i < 5; ++i) chain.push_back({.fingerprint = Fingerprint(i)});
  for (int i = 0; i < 50; ++i) TellRequest(learned, chain, std::chrono::seconds(30 * i));
  const std::string saved = learned.learner()->Save();
  CHECK(saved != other.learner()->Save());
  other.learner()->Load("from elsewhere");
  other.learner()->Load(saved);
  CHECK(other.learner()->Save() == saved);
  CHECK(other.size() == 0);
}

TEST_CASE("two chunks of one fingerprint, and many puts without a request, do reuse no harm") {
  ReusePolicy policy({.max_chunks = 200});
  SeededRandom random(11);
  std::map<uint32_t, uint64_t> in;
  for (int step = 0; step < 20'000; ++step) {
    const auto slot = static_cast<uint32_t>(random.Below(200));
    const uint64_t print = random.Below(40);
    if (!in.contains(slot)) {
      policy.OnInsert({.slot = ChunkSlot(slot), .fingerprint = Fingerprint(print)},
                      std::chrono::seconds(step));
      in[slot] = print;
    } else if (random.Chance(0.2)) {
      policy.OnErase(ChunkSlot(slot), EvictionPolicy::EraseReason::kRemoved);
      in.erase(slot);
    }
    if (in.size() > 100) {
      const auto victim = policy.Victim();
      REQUIRE(victim.has_value());
      REQUIRE(in.erase(victim->value()) == 1);
      policy.OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
    }
  }
}

}  // namespace kvkeep
