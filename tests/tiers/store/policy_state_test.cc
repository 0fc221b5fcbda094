// An eviction policy's learned state, over a restart.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

WorldOptions Learning(const std::string& policy = "reuse") {
  WorldOptions options = SmallWorld();
  options.store.g2_policy = options.store.g3_policy = policy;
  return options;
}

std::string Saved(StoreTester& s, const std::string& name) {
  s.Pass(seconds(61));
  return s.world.index().GetMeta(name)->value_or("");
}

// Returns the name of the default tenant's value of that tier.
std::string Name(StoreTester& s, const std::string& tier) {
  const auto all = s.world.index().ListMeta("learned." + tier).value();
  return all.empty() ? "" : all[0].first;
}

void Ask(StoreTester& s) {
  for (uint64_t name = 0; name < 5; ++name) REQUIRE(s.Put(name) == "stored");
  for (int i = 0; i < 50; ++i) {
    s.Lookup({0, 1, 2, 3, 4}, LeaseMode::kNone);
    s.world.clock().Advance(seconds(30));
  }
}

}  // namespace

TEST_CASE("what reuse has learned is there after a kill, for both tiers") {
  StoreTester s(Learning());
  Saved(s, "");
  const std::string g2 = Name(s, "g2"), g3 = Name(s, "g3");
  const std::string fresh = Saved(s, g3);
  REQUIRE_FALSE(fresh.empty());
  Ask(s);
  const std::string learned_g2 = Saved(s, g2);
  REQUIRE(learned_g2 != fresh);
  REQUIRE(Saved(s, g3) != fresh);
  s.KillAndStart();
  CHECK(Saved(s, g2) == learned_g2);
  CHECK(Saved(s, g3) != fresh);  // into which chunks were put back
}

TEST_CASE("what was learned and is damaged, cut or of another version begins anew") {
  StoreTester s(Learning());
  Saved(s, "");
  const std::string name = Name(s, "g2");
  const std::string fresh = Saved(s, name);
  Ask(s);
  const std::string learned = Saved(s, name);
  std::string flipped = learned, newer = learned;
  flipped[learned.size() / 2] ^= 4;
  newer[0] = 2;
  for (const std::string& bad : {flipped, newer, learned.substr(0, learned.size() / 2),
                                 learned.substr(0, 5), std::string(1 << 20, 1), std::string()}) {
    REQUIRE(s.world.index().PutMeta(name, bad).ok());
    s.KillAndStart();
    CHECK(Saved(s, name) == fresh);
  }
  REQUIRE(s.world.index().PutMeta(name, learned).ok());
  s.KillAndStart();
  CHECK(Saved(s, name) == learned);
}

TEST_CASE("what reuse has learned serves the policy seconds") {
  StoreTester reuse(Learning()), seconds(Learning("seconds"));
  Saved(reuse, "");
  const std::string name = Name(reuse, "g2");
  Ask(reuse);
  const std::string learned = Saved(reuse, name);
  REQUIRE(Saved(seconds, name) != learned);
  REQUIRE(seconds.world.index().PutMeta(name, learned).ok());
  seconds.KillAndStart();
  CHECK(Saved(seconds, name) == learned);
}

TEST_CASE("a policy that learns nothing leaves nothing, and what another one left does no harm") {
  StoreTester s(Learning("lru"));
  Ask(s);
  Saved(s, "");
  CHECK(s.world.index().ListMeta("learned.")->empty());
}

}  // namespace kvkeep
