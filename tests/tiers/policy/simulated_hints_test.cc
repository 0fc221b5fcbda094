#include "tiers/policy/simulated_hints.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tiers/policy/simulate.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;

TraceRequest At(int second, std::vector<uint64_t> ids) {
  return {.timestamp = seconds(second), .hash_ids = std::move(ids)};
}

HintOptions Only(const std::string& action) {
  HintOptions options{.retained_for = seconds(60), .share = 0.9};
  options.retains = action == "retain";
  options.demotes = action == "demote";
  return options;
}

HintResult Hinted(const std::vector<TraceRequest>& requests, uint64_t capacity,
                  const HintOptions& options, absl::string_view policy = "lru") {
  const auto result = SimulateHints(requests, policy, capacity, options);
  REQUIRE(result.ok());
  return *result;
}

uint64_t Hits(const std::vector<TraceRequest>& requests, uint64_t capacity,
              const HintOptions& options) {
  return Hinted(requests, capacity, options).trace.leading_hit_chunks;
}

uint64_t HitsWithout(const std::vector<TraceRequest>& requests, uint64_t capacity) {
  return SimulateTrace(requests, "lru", capacity)->leading_hit_chunks;
}

// A chain that comes back after others, none of which does.
const std::vector<TraceRequest> kPaused = {At(0, {1, 2}), At(1, {11, 12}), At(2, {13, 14}),
                                           At(3, {15, 16}), At(50, {1, 2, 3})};

}  // namespace

TEST_CASE("a chain that is known to come back is retained, whatever comes between") {
  CHECK(HitsWithout(kPaused, 4) == 0);
  CHECK(Hits(kPaused, 4, Only("retain")) == 2);
  CHECK(Hinted(kPaused, 4, Only("retain")).hints.retentions == 1);
}

TEST_CASE("a chain that is known not to come back goes first, tail first") {
  // Each pair from 11 to 16 makes room for the next one.
  CHECK(Hits(kPaused, 4, Only("demote")) == 2);
  CHECK(Hinted(kPaused, 4, Only("demote")).hints.demotions == 4);
  // 4 goes for 8, and 2 for 9. 1 is left.
  CHECK(Hits({At(0, {5}), At(0, {1, 2, 4}), At(1, {8}), At(2, {9}), At(3, {1}), At(3, {5})}, 4,
             Only("demote")) == 2);
}

TEST_CASE("a demoted chunk that is asked for is as good as any") {
  // The wrong hint demotes 1 and 2 at first; the second request for them ends that.
  HintOptions wrong = Only("demote");
  wrong.right = 0;
  CHECK(Hits({At(0, {1, 2}), At(1, {1, 2}), At(2, {3}), At(3, {1, 2})}, 3, wrong) == 4);
}

TEST_CASE("a retention ends at its time") {
  HintOptions options = Only("retain");
  options.retained_for = seconds(50);
  CHECK(Hits(kPaused, 4, options) == 2);  // it ends as the request arrives, which finds everything
  std::vector<TraceRequest> later = kPaused;
  later.insert(later.begin() + 4, At(50, {17, 18}));
  later.back().timestamp = seconds(51);
  CHECK(Hits(later, 4, options) == 0);
}

TEST_CASE("the next request of a chain ends the retention of the one before") {
  // 1 and 2 come twice and never again; then they are worth no more than others.
  CHECK(Hits({At(0, {1, 2}), At(1, {1, 2}), At(2, {3, 4}), At(3, {5, 6}), At(4, {3, 4}),
              At(5, {5, 6})},
             4, Only("retain")) == 2 + 2 + 2);
}

TEST_CASE("what is above the share is not retained: the head is") {
  HintOptions options = Only("retain");
  options.share = 0.25;
  const HintResult result = Hinted(kPaused, 4, options);
  CHECK(result.trace.leading_hit_chunks == 1);
  CHECK(result.hints.shortened == 1);
  options.share = 0;
  CHECK(Hits(kPaused, 4, options) == HitsWithout(kPaused, 4));
}

TEST_CASE("a chunk that another chain retains, or has used since, is not demoted with a chain") {
  const HintOptions options{.retained_for = seconds(60), .share = 0.9};
  // 1 is the head of both chains. The first one ends; the second one comes back.
  CHECK(Hits({At(0, {1, 2, 3}), At(1, {1, 5, 6}), At(2, {1, 2, 3}), At(3, {21, 22, 23}),
              At(4, {1, 5, 6})},
             6, options) == 1 + 3 + 3);
  // Both end, and 1 is not what goes after 6, 5, 3 and 2.
  CHECK(Hits({At(0, {1, 2, 3}), At(1, {1, 5, 6}), At(2, {1, 2, 3}), At(3, {21}), At(3, {22}),
              At(3, {23}), At(3, {24}), At(3, {25}), At(4, {1, 9})},
             5, options) == 1 + 3 + 1);
}

TEST_CASE("hints that are always wrong are the opposite of right ones") {
  HintOptions wrong = Only("retain");
  wrong.right = 0;
  const HintResult result = Hinted(kPaused, 4, wrong);
  CHECK(result.hints.retentions == 4);
  CHECK(result.trace.leading_hit_chunks == 0);
}

TEST_CASE("which hints are wrong follows from the seed") {
  HintOptions half = Only("retain");
  half.right = 0.5;
  std::vector<TraceRequest> requests;
  for (int i = 0; i < 200; ++i) requests.push_back(At(i, {uint64_t(i), uint64_t(i) + 1000}));
  const uint64_t first = Hinted(requests, 50, half).hints.retentions;
  CHECK(first == Hinted(requests, 50, half).hints.retentions);
  CHECK((first > 70 && first < 130));  // of 200 that never come back
  half.seed = 2;
  CHECK(first != Hinted(requests, 50, half).hints.retentions);
}

TEST_CASE("options out of range are refused by name") {
  const auto message = [](const HintOptions& options) {
    return std::string(SimulateHints({}, "lru", 4, options).status().message());
  };
  CHECK(message({.right = 1.1}) == "right: 1.1, must be 0 to 1");
  CHECK(message({.right = std::numeric_limits<double>::quiet_NaN()}) ==
        "right: nan, must be 0 to 1");
  CHECK(message({.share = 1}) == "share: 1, must be 0 to 0.9");
  CHECK(message({.retained_for = seconds(0)}) == "retained_for: must be above 0");
  CHECK_FALSE(SimulateHints({}, "none", 4, {}).ok());
}

}  // namespace kvkeep
