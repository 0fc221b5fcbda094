#include "tiers/remote/prefix_search.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

struct Searched {
  size_t leading = 0;
  uint32_t questions = 0, rounds = 0;
};

// Searches a run whose first `there` keys are there, except for the `holes`.
Searched SearchIn(size_t keys, size_t there, const PrefixSearchOptions& options = {},
                  const std::set<size_t>& holes = {}) {
  PrefixSearch search(keys, options);
  std::set<size_t> asked;
  while (true) {
    const std::vector<size_t> round = search.NextRound();
    if (round.empty()) break;
    CHECK(std::is_sorted(round.begin(), round.end()));
    for (const size_t at : round) {
      CHECK(asked.insert(at).second);  // nothing is asked twice
      search.Tell(at, at < there && !holes.contains(at));
    }
  }
  CHECK(search.questions() == asked.size());
  return {search.leading(), search.questions(), search.rounds()};
}

}  // namespace

TEST_CASE("a search among 512 keys finds what is there by the questions that the design counts") {
  uint32_t most = 0, all = 0;
  for (size_t there = 0; there <= 512; ++there) {
    CAPTURE(there);
    const Searched found = SearchIn(512, there);
    CHECK(found.leading == there);
    CHECK(found.rounds <= 3);
    most = std::max(most, found.questions);
    all += found.questions;
    if (there == 0 || there == 512) {
      CHECK(found.questions == 20);
      CHECK(found.rounds == 1);
    }
    if (there <= 8 || there >= 504) {
      CHECK(found.questions <= 23);
      CHECK(found.rounds <= 2);
    }
  }
  CHECK(most <= 43);
  CHECK(all / 513 <= 41);
}

TEST_CASE("a search of any length stays within its limits, and never finds what is not there") {
  for (const size_t keys : {1, 2, 3, 7, 8, 31, 32, 33, 34, 100, 1000, 2048, 100'000}) {
    for (size_t i = 0; i <= 100; ++i) {
      const size_t there = keys * i / 100;
      CAPTURE(keys, there);
      const Searched found = SearchIn(keys, there);
      CHECK(found.leading <= there);
      CHECK(found.questions <= 48);
      CHECK(found.rounds <= 3);
      if (keys <= 512) CHECK(found.leading == there);
      // The limits leave out little.
      if (keys <= 2048) CHECK(there - found.leading <= 8);
    }
  }
  CHECK(SearchIn(0, 0).rounds == 0);
}

TEST_CASE("of a short run all is asked for at once") {
  CHECK(SearchIn(32, 17).rounds == 1);
  CHECK(SearchIn(5, 0).questions == 5);
}

TEST_CASE("the first key alone ends a search that finds it absent") {
  const PrefixSearchOptions options{.first_alone = true};
  CHECK(SearchIn(512, 0, options).questions == 1);
  const Searched all = SearchIn(512, 512, options);
  CHECK(all.leading == 512);
  CHECK(all.rounds == 2);
}

TEST_CASE("of a run that is there at its end alone the last keys are asked for, each") {
  for (const bool first_alone : {false, true}) {
    for (const size_t keys : {49, 512, 2048}) {
      for (const size_t window : {1, 2, 17, 24, 400}) {
        CAPTURE(first_alone, keys, window);
        if (window >= keys) continue;
        PrefixSearch search(keys, {.first_alone = first_alone}, true);
        std::set<size_t> asked, found;
        for (auto round = search.NextRound(); !round.empty(); round = search.NextRound()) {
          CHECK(std::is_sorted(round.begin(), round.end()));
          for (const size_t at : round) {
            CHECK(asked.insert(at).second);
            const bool there = at >= keys - window;
            if (there) found.insert(at);
            search.Tell(at, there);
          }
        }
        CHECK(search.is_tail());
        CHECK(search.leading() == 0);
        CHECK(search.rounds() == 2);
        CHECK(search.questions() == 48);
        for (size_t at = keys - std::min<size_t>(window, 24); at < keys; ++at) {
          CHECK(found.contains(at));
        }
      }
    }
  }
}

TEST_CASE("no last keys are asked for of a run with a head or without an end, or without use") {
  const auto questions = [](bool tail, bool head, bool end) {
    PrefixSearch search(512, {}, tail);
    for (auto round = search.NextRound(); !round.empty(); round = search.NextRound()) {
      for (const size_t at : round) search.Tell(at, (head && at < 200) || (end && at >= 500));
    }
    CHECK_FALSE(search.is_tail());
    return search.questions();
  };
  CHECK(questions(true, false, false) == 20);
  CHECK(questions(false, false, true) == 20);
  CHECK(questions(true, true, true) == questions(false, true, true));
}

TEST_CASE("a run ends at the first hole that is seen, and no lower than what is sure") {
  SeededRandom random(5);
  for (int round = 0; round < 500; ++round) {
    const size_t keys = random.Between(1, 600), there = random.Below(keys + 1);
    std::set<size_t> holes;
    for (int i = 0; i < 3; ++i) holes.insert(random.Below(keys));
    CAPTURE(round, keys, there, holes);
    const Searched found = SearchIn(keys, there, {}, holes);
    CHECK(found.leading <= there);
    CHECK((found.leading == 0 || !holes.contains(found.leading - 1)));
  }
  CHECK(SearchIn(512, 512, {}, {0}).leading == 0);
}

}  // namespace kvkeep
