#include "tiers/policy/ghosts.h"

#include <catch2/catch.hpp>
#include <list>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {

TEST_CASE("a ghost is found once, and its list is told") {
  Ghosts ghosts(10);
  CHECK_FALSE(ghosts.Take(Fingerprint(1)).has_value());
  ghosts.Add(0, Fingerprint(1));
  ghosts.Add(1, Fingerprint(2));
  CHECK(ghosts.Take(Fingerprint(1)) == 0);
  CHECK_FALSE(ghosts.Take(Fingerprint(1)).has_value());
  CHECK(ghosts.Take(Fingerprint(2)) == 1);
  CHECK(ghosts.size(0) + ghosts.size(1) == 0);
}

TEST_CASE("ghosts that share memory do not see each other, and share its limit") {
  Ghosts mine(3);
  Ghosts others = Ghosts::Sharing(mine);
  mine.Add(0, Fingerprint(1));
  CHECK_FALSE(others.Take(Fingerprint(1)).has_value());
  others.Add(0, Fingerprint(1));
  others.Add(0, Fingerprint(2));
  others.Add(0, Fingerprint(3));  // full: not noted
  CHECK(others.size(0) == 2);
  mine.DropOldest(0);
  others.Add(0, Fingerprint(3));
  CHECK(others.size(0) == 3);
  CHECK(others.Take(Fingerprint(1)) == 0);
}

TEST_CASE("ghosts do what two plain lists do, for any sequence of calls") {
  constexpr uint32_t kMost = 300;
  Ghosts ghosts(kMost);
  std::array<std::list<uint64_t>, 2> lists;
  const auto take = [&lists](uint64_t print) -> std::optional<int> {
    for (int l = 0; l < 2; ++l) {
      const auto found = std::find(lists[l].begin(), lists[l].end(), print);
      if (found == lists[l].end()) continue;
      lists[l].erase(found);
      return l;
    }
    return std::nullopt;
  };
  SeededRandom random(3);
  for (int step = 0; step < 50'000; ++step) {
    const uint64_t print = random.Below(500);
    const auto list = static_cast<int>(random.Below(2));
    const uint64_t choice = random.Below(10);
    if (choice < 6) {
      take(print);
      if (lists[0].size() + lists[1].size() < kMost) lists[list].push_back(print);
      ghosts.Add(list, Fingerprint(print));
    } else if (choice < 9) {
      REQUIRE(ghosts.Take(Fingerprint(print)) == take(print));
    } else if (!lists[list].empty()) {
      ghosts.DropOldest(list);
      lists[list].pop_front();
    }
    for (int l = 0; l < 2; ++l) REQUIRE(ghosts.size(l) == lists[l].size());
  }
}

}  // namespace kvkeep
