// Requests are learned from without the store's lock, and the policies follow.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

WorldOptions LearningWorld(const std::string& policy, size_t devices = 1) {
  WorldOptions options = SmallWorld();
  options.g2_blocks = options.g2_segment_blocks = 128;
  options.device_blocks.assign(devices, 400);
  options.store.g2_policy = options.store.g3_policy = policy;
  return options;
}

std::vector<uint64_t> NamesFrom(uint64_t first, uint64_t count) {
  std::vector<uint64_t> names(count);
  std::iota(names.begin(), names.end(), first);
  return names;
}

// Plays ten sessions of four chunks that come back each half minute, with chunks asked for once in
// between. Puts each missing chunk. Returns the hits of the sessions in the later rounds.
uint64_t HitsOfSessions(StoreTester& s) {
  uint64_t once = 1'000'000, hits = 0;
  for (int round = 0; round < 40; ++round) {
    for (uint64_t session = 0; session < 10; ++session) {
      s.world.clock().Advance(seconds(3));
      for (const bool back : {true, false}) {
        const auto names = back ? NamesFrom(100 * session, 4) : NamesFrom(once, 6);
        once += back ? 0 : 6;
        const uint32_t leading = s.Lookup(names, LeaseMode::kNone).leading_keys;
        s.RunAll();
        if (back && round >= 20) hits += leading;
        for (size_t i = leading; i < names.size(); ++i) {
          const PutHow how{.no_g3 = true,
                           .parent = i == 0 ? std::nullopt : std::optional(names[i - 1])};
          const std::string answer = s.Put(names[i], 4096, how);
          REQUIRE((answer == "stored" || answer == "present"));
        }
      }
    }
  }
  return hits;
}

}  // namespace

TEST_CASE("a lookup takes the lock as often under reuse as under lru, on any number of devices") {
  const auto takes = [](const std::string& policy, size_t devices) {
    StoreTester s(LearningWorld(policy, devices));
    const std::vector<uint64_t> names = NamesFrom(0, 40);
    for (const uint64_t name : names) REQUIRE(s.Put(name) == "stored");
    s.Settle();
    for (int i = 0; i < 3; ++i) {  // until everything there is judged
      s.Lookup(names, LeaseMode::kNone);
      s.store().Tick();
      s.RunAll();
    }
    const uint64_t before = s.store().snapshot().lock_hold.count();
    CHECK(s.Lookup(names, LeaseMode::kNone).leading_keys == names.size());
    s.store().Tick();
    s.RunAll();
    return s.store().snapshot().lock_hold.count() - before;
  };
  CHECK(takes("reuse", 1) == takes("lru", 1));
  CHECK(takes("reuse", 6) == takes("lru", 1));
}

TEST_CASE("many small lookups post one task of learning, and a tick posts it for few") {
  StoreTester s(LearningWorld("reuse"));
  for (const uint64_t name : NamesFrom(0, 8)) REQUIRE(s.Put(name) == "stored");
  s.Pass(seconds(120));
  s.Settle();
  REQUIRE(s.world.executor().idle());
  const auto tasks_of = [&s](int lookups) {
    for (int i = 0; i < lookups; ++i) s.Lookup(NamesFrom(0, 8), LeaseMode::kNone);
    return s.world.executor().size();
  };
  CHECK(tasks_of(20) == 0);
  CHECK_FALSE(s.store().Tick());
  CHECK(s.world.executor().size() == 2);  // G2's and G3's
  s.RunAll();
  CHECK(tasks_of(1'000) == 2);
  s.RunAll();
  CHECK(s.counters().learning_skipped == 0);
}

TEST_CASE("a tenant that floods lookups has a bounded part of them learned") {
  StoreTester s(LearningWorld("reuse"));
  const std::vector<uint64_t> names = NamesFrom(0, 256);
  for (int tick = 1; tick <= 3; ++tick) {
    for (int i = 0; i < 256; ++i) {
      s.Lookup(names, LeaseMode::kNone);
      s.RunAll();  // however fast it learns
    }
    CHECK(s.counters().learning_skipped ==
          2u * 128 * static_cast<unsigned>(tick));  // G2's and G3's
    s.store().Tick();
    s.RunAll();
  }
}

TEST_CASE("a lookup is learned as a whole, however long it is") {
  StoreTester s(LearningWorld("reuse"));
  const std::vector<uint64_t> names = NamesFrom(0, 40'000);
  s.Lookup(names, LeaseMode::kNone);
  CHECK(s.counters().learning_skipped == 0);
  s.Lookup(NamesFrom(0, 1), LeaseMode::kNone);
  CHECK(s.counters().learning_skipped == 2);  // G2's and G3's
  s.store().Tick();
  s.RunAll();
  s.Lookup(names, LeaseMode::kNone);
  CHECK(s.counters().learning_skipped == 2);
}

TEST_CASE("a store does not rest while something waits to be learned") {
  StoreTester s(LearningWorld("reuse"));
  for (const uint64_t name : NamesFrom(0, 8)) REQUIRE(s.Put(name) == "stored");
  s.Pass(seconds(120));
  s.Settle();
  REQUIRE(s.store().Tick());
  s.Lookup(NamesFrom(0, 8), LeaseMode::kNone);
  CHECK_FALSE(s.store().Tick());
  s.RunAll();
  CHECK(s.store().Tick());
}

TEST_CASE("under reuse sessions that come back stay, whatever passes between them") {
  StoreTester reuse(LearningWorld("reuse")), lru(LearningWorld("lru"));
  const uint64_t of_reuse = HitsOfSessions(reuse), of_lru = HitsOfSessions(lru);
  CAPTURE(of_reuse, of_lru);
  CHECK(of_lru < 100);
  CHECK(of_reuse > 400);  // of 800
  CHECK(reuse.counters().learning_skipped == 0);
}

TEST_CASE("chunks that come without a lookup are learned of at the next tick") {
  StoreTester s(LearningWorld("reuse"));
  for (const uint64_t name : NamesFrom(0, 8)) REQUIRE(s.Put(name) == "stored");
  CHECK_FALSE(s.store().Tick());
  s.Pass(seconds(120));
  s.Settle();
  CHECK(s.store().Tick());
}

}  // namespace kvkeep
