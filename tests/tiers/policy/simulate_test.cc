#include "tiers/policy/simulate.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "tiers/policy/reuse_policy.h"
#include "tiers/policy/simulated_tier.h"
#include "tiers/policy/trace.h"

namespace kvkeep {
namespace {

TraceRequest Chain(std::vector<uint64_t> ids) { return {.hash_ids = std::move(ids)}; }

// Returns the leading hit chunks of an LRU.
uint64_t Hits(const std::vector<TraceRequest>& requests, uint64_t capacity) {
  const auto result = SimulateTrace(requests, "lru", capacity);
  REQUIRE(result.ok());
  return result->leading_hit_chunks;
}

}  // namespace

TEST_CASE("only the leading run of a chain counts as hit") {
  const auto result = SimulateTrace(
      std::vector{Chain({1, 2, 3}), Chain({1, 2, 3}), Chain({1, 9, 3}), Chain({8, 2, 3})}, "lru",
      100);
  REQUIRE(result.ok());
  CHECK(result->requests == 4);
  CHECK(result->chunk_refs == 12);
  CHECK(result->leading_hit_chunks == 4);
  CHECK(result->hit_ratio == Approx(4.0 / 12));
}

TEST_CASE("hits save the seconds of the run at the head, deep chunks more than shallow ones") {
  const PrefillCost cost{.seconds_per_token = 1, .seconds_per_pair = 0.5, .tokens_per_chunk = 2};
  CHECK(cost.Of(0) == 0);
  CHECK(cost.Of(1) == 2 + 3 * 0.5);   // the second token reads two
  CHECK(cost.Of(3) == 6 + 21 * 0.5);  // of six tokens, the last one reads six
  TraceRequest partial = Chain({8, 2});
  partial.partial_chunks = 1;
  const auto result =
      SimulateTrace(std::vector{Chain({1, 2, 3}), Chain({1, 2, 3}), Chain({1, 9, 3}), partial},
                    "lru", 100, {}, cost);
  REQUIRE(result.ok());
  CHECK(result->prefill_seconds == 4 * cost.Of(3));
  CHECK(result->seconds_saved == cost.Of(3) + cost.Of(1));
  const auto tiers = SimulateTiers(std::vector{Chain({1, 2, 3}), Chain({1, 2, 9})},
                                   {.g2_chunks = 1, .g3_chunks = 10, .cost = cost});
  REQUIRE(tiers.ok());
  CHECK(tiers->trace.seconds_saved == cost.Of(2));
}

TEST_CASE("the tail of the longest untouched chain goes first") {
  CHECK(Hits({Chain({1, 2}), Chain({3, 4}), Chain({5}), Chain({1, 2})}, 4) == 1);
  CHECK(Hits({Chain({1, 2}), Chain({3, 4}), Chain({5}), Chain({3, 4})}, 4) == 2);
}

TEST_CASE("a request longer than the tier keeps its head, and only that") {
  CHECK(Hits({Chain({1, 2, 3, 4, 5}), Chain({1, 2, 3, 4, 5})}, 3) == 3);
  CHECK(Hits({Chain({1, 2, 3, 4, 5}), Chain({4}), Chain({5})}, 3) == 0);
  CHECK(Hits({Chain({1, 2}), Chain({1, 2})}, 1) == 1);
  // It starts over a tier full of others and evicts all of them, but nothing of its own head.
  CHECK(Hits({Chain({7, 8, 9}), Chain({1, 2, 3, 4}), Chain({1, 2, 3})}, 3) == 3);
  // 4 is there, then evicted to make room for 2 and 3 before its own turn comes.
  CHECK(Hits({Chain({4}), Chain({1, 2, 3, 4}), Chain({1, 2, 3, 4})}, 3) == 3);
}

TEST_CASE("an empty trace and empty chains have no hits") {
  const auto none = SimulateTrace({}, "lru", 1);
  REQUIRE(none.ok());
  CHECK(none->hit_ratio == 0);
  CHECK(Hits({Chain({}), Chain({})}, 1) == 0);
}

TEST_CASE("an unknown policy and a capacity out of range are refused by name") {
  const auto message = [](absl::string_view policy, uint64_t capacity) {
    return std::string(SimulateTrace({}, policy, capacity).status().message());
  };
  CHECK(message("lru", kMaxSimulatedChunks + uint64_t{1}) ==
        "capacity_chunks: 268435457, must be 1 to 268435456");
  CHECK_THAT(message("lru", 0), Catch::StartsWith("capacity_chunks: 0"));
  CHECK_THAT(message("mru", 1), Catch::StartsWith("policy: no \"mru\", known are "));
}

namespace {

TiersResult Tiers(const std::vector<TraceRequest>& trace, TiersOptions options) {
  options.chunk_bytes = 10;
  const auto result = SimulateTiers(trace, options);
  REQUIRE(result.ok());
  return *result;
}

}  // namespace

TEST_CASE("what G2 has lost is found in G3, brought back, and written once") {
  const std::vector trace = {Chain({1, 2}), Chain({3, 4}), Chain({1, 2}), Chain({1, 2})};
  const TiersResult result = Tiers(trace, {.g2_chunks = 2, .g3_chunks = 10});
  CHECK(result.trace.leading_hit_chunks == 4);
  CHECK(result.g2_hit_chunks == 2);
  CHECK(result.g3_written_bytes == 40);
}

TEST_CASE("written as it comes, a chunk is in G3 whether or not G2 keeps it") {
  const std::vector trace = {Chain({1, 2, 3, 4}), Chain({1, 2, 3, 4})};
  const TiersResult result = Tiers(trace, {.g2_chunks = 2, .g3_chunks = 10});
  CHECK(result.g3_written_bytes == 40);
  CHECK(result.trace.leading_hit_chunks == 4);
  CHECK(result.g2_hit_chunks == 2);
}

TEST_CASE("written as it leaves G2, a chunk that stays there is never written") {
  const std::vector trace = {Chain({1, 2}), Chain({3, 4}), Chain({1, 2}), Chain({1, 2})};
  const TiersResult wide =
      Tiers(trace, {.g2_chunks = 4, .g3_chunks = 10, .write_policy = "on_evict"});
  CHECK(wide.g3_written_bytes == 0);
  CHECK(wide.trace.leading_hit_chunks == 4);
  const TiersResult narrow =
      Tiers(trace, {.g2_chunks = 2, .g3_chunks = 10, .write_policy = "on_evict"});
  CHECK(narrow.g3_written_bytes == 40);
  CHECK(narrow.trace.leading_hit_chunks == 4);
}

TEST_CASE("with second_use only what comes again is written, and can be lost before") {
  const std::vector trace = {Chain({1, 2}), Chain({1, 3}), Chain({4, 5}), Chain({1, 2})};
  const TiersResult result =
      Tiers(trace, {.g2_chunks = 3, .g3_chunks = 10, .admission = "second_use"});
  CHECK(result.trace.leading_hit_chunks == 2);  // 1, twice
  CHECK(result.g3_written_bytes == 20);         // 1; and 2, at the end
}

TEST_CASE("a budget of writes holds over a whole trace") {
  std::vector<TraceRequest> trace;
  for (uint64_t i = 0; i < 4'000; ++i) {
    trace.push_back(Chain({i}));
    trace.back().timestamp = std::chrono::seconds(10 * i);
  }
  const TiersResult result = Tiers(trace, {.g2_chunks = 10,
                                           .g3_chunks = 100,
                                           .admission = "write_budget",
                                           .admission_options = {.bytes_per_second = 0.5}});
  const double allowed = 0.5 * (3600 + 10 * 4'000);
  CHECK(static_cast<double>(result.g3_written_bytes) == Approx(allowed).epsilon(0.01));
}

TEST_CASE("an option of two tiers that makes no sense is refused by name") {
  const auto message = [](TiersOptions options) {
    if (options.g2_chunks == 0) options.g2_chunks = 1;
    return std::string(SimulateTiers({}, options).status().message());
  };
  CHECK_THAT(std::string(SimulateTiers({}, {.g3_chunks = 1}).status().message()),
             Catch::StartsWith("g2_chunks: 0"));
  CHECK_THAT(message({}), Catch::StartsWith("g3_chunks: 0"));
  CHECK_THAT(message({.g2_policy = "x", .g3_chunks = 1}), Catch::StartsWith("g2_policy: no \"x"));
  CHECK_THAT(message({.g3_policy = "min", .g3_chunks = 1}), Catch::StartsWith("g3_policy: no \"m"));
  CHECK_THAT(message({.g3_chunks = 1, .admission = "x"}), Catch::StartsWith("admission: no \"x"));
  CHECK_THAT(message({.g3_chunks = 1, .write_policy = "x"}), Catch::StartsWith("write_policy:"));
  CHECK_THAT(message({.g3_chunks = 1, .admission = "write_budget"}),
             Catch::StartsWith("bytes_per_second:"));
}

TEST_CASE("MIN knows the trace: it keeps what is asked for soonest, and not what never is") {
  const std::vector trace = {Chain({1}), Chain({2}), Chain({3}), Chain({2}), Chain({1})};
  const auto result = SimulateTrace(trace, "min", 1);
  REQUIRE(result.ok());
  CHECK(result->leading_hit_chunks == 1);  // 2 pushes 1 out, 3 passes by
  CHECK(SimulateTrace(trace, "min", 2)->leading_hit_chunks == 2);
  // With one later request, the head is kept.
  CHECK(SimulateTrace(std::vector{Chain({1, 2, 3}), Chain({1, 2, 3})}, "min", 2)
            ->leading_hit_chunks == 2);
}

namespace {

// Prefix hit ratio in %, at 1, 5, 10, 25, 50 % of the distinct chunks, by other simulators.
struct Anchor {
  const char* policy;
  std::array<double, 5> percent;
};

void CheckAnchors(const std::string& path, size_t requests, uint64_t distinct,
                  const std::vector<Anchor>& anchors) {
  const auto trace = ReadTrace(path);
  REQUIRE(trace.ok());
  REQUIRE(trace->size() == requests);
  constexpr std::array kShares = {1, 5, 10, 25, 50};
  for (const Anchor& anchor : anchors) {
    for (size_t i = 0; i < kShares.size(); ++i) {
      CAPTURE(anchor.policy, kShares[i]);
      const auto result = SimulateTrace(*trace, anchor.policy, (distinct * kShares[i] + 50) / 100);
      REQUIRE(result.ok());
      CHECK(100 * result->hit_ratio == Approx(anchor.percent[i]).margin(0.3).epsilon(0));
    }
  }
}

}  // namespace

namespace {

double Percent(const std::vector<TraceRequest>& trace, absl::string_view policy, uint64_t chunks) {
  return 100 * SimulateTrace(trace, policy, chunks)->hit_ratio;
}

}  // namespace

TEST_CASE("reuse has the hit ratios on the conversation trace that it is there for", "[figures]") {
  const auto trace = ReadTrace("tests/traces/conversation_trace.jsonl");
  REQUIRE(trace.ok());
  CHECK(Percent(*trace, "reuse", 1'828) >= 9.6);
  CHECK(Percent(*trace, "reuse", 9'140) >= 22.6);
  CHECK(Percent(*trace, "reuse", 18'279) >= 29.4);
  CHECK(Percent(*trace, "reuse", 45'698) >= 35.2);
}

TEST_CASE("seconds saves more prefill than others, where long chains come back", "[figures]") {
  auto trace = ReadTrace("tests/traces/synthetic_trace.jsonl");
  REQUIRE(trace.ok());
  KeepFullChunks(*trace, 512);
  // llama-3.1-8b: attention costs as much as the linear layers where 30,600 tokens are before.
  const PrefillCost cost{.seconds_per_token = 1e-4, .seconds_per_pair = 1e-4 / 30'600};
  const auto saved = [&](absl::string_view policy, uint64_t chunks) {
    const auto result = SimulateTrace(*trace, policy, chunks, {}, cost);
    REQUIRE(result.ok());
    return result->seconds_saved;
  };
  for (const uint64_t chunks : {439u, 2'196u, 4'392u}) {
    CAPTURE(chunks);
    const double other =
        std::max({saved("lru", chunks), saved("arc", chunks), saved("reuse", chunks)});
    CHECK(saved("seconds", chunks) >= 1.05 * other);
  }
}

namespace {

// Serves the request; returns the chunks that had to go for it.
std::vector<uint64_t> Serve(SimulatedTier& tier, const TraceRequest& request) {
  std::vector<uint64_t> gone;
  std::optional<uint64_t> parent;
  tier.Tell(request.hash_ids, request.timestamp);
  for (const uint64_t id : request.hash_ids) {
    if (!tier.Contains(id)) {
      const std::optional<uint64_t> victim = tier.Insert(id, parent, request.timestamp);
      if (victim.has_value()) gone.push_back(*victim);
      if (victim == id) break;
    }
    parent = id;
  }
  return gone;
}

// Evicted chunks: how many, and how many of these another tier still holds.
struct Gone {
  size_t chunks = 0, held_by_other = 0;
  void Add(const std::vector<uint64_t>& gone, const SimulatedTier& other) {
    chunks += gone.size();
    for (const uint64_t id : gone) held_by_other += other.Contains(id);
  }
  double share() const { return static_cast<double>(held_by_other) / static_cast<double>(chunks); }
};

}  // namespace

TEST_CASE("reuse follows arc where arc does better, and leads again when it does not") {
  constexpr uint32_t kChunks = 2'196;  // of the synthetic trace, whose load is not steady
  const auto trace = ReadTrace("tests/traces/synthetic_trace.jsonl");
  REQUIRE(trace.ok());
  auto policy = std::make_unique<ReusePolicy>(PolicyOptions{.max_chunks = kChunks + 1});
  const ReuseLearner& learner = *policy->learner();
  SimulatedTier reuse(std::move(policy), kChunks);
  SimulatedTier arc(MakeEvictionPolicy("arc", {.max_chunks = kChunks + 1}), kChunks);
  std::vector<size_t> changes;  // requests after which another one leads
  Gone own, following;          // from reuse, and still in arc
  for (size_t i = 0; i < 2'000; ++i) {
    const bool follows = learner.follows_arc();
    Serve(arc, (*trace)[i]);
    (follows ? following : own).Add(Serve(reuse, (*trace)[i]), arc);
    if (learner.follows_arc() != follows) changes.push_back(i);
  }
  CAPTURE(changes, own.chunks, own.held_by_other, following.chunks, following.held_by_other);
  REQUIRE(changes.size() == 2);  // there, and back
  CHECK(changes[1] > changes[0] + 200);
  CHECK_FALSE(learner.follows_arc());
  // While it follows arc it evicts mostly chunks that arc does not hold, as its shadow of arc has
  // played another past.
  CHECK(following.chunks > 1'000);
  CHECK(following.share() < 0.15);
  CHECK(own.share() > 0.3);
}

TEST_CASE("reuse is never much below the better of lru and arc", "[figures]") {
  for (const std::string name : {"conversation", "synthetic"}) {
    const auto trace = ReadTrace("tests/traces/" + name + "_trace.jsonl");
    REQUIRE(trace.ok());
    for (const uint64_t chunks : {439u, 1'828u, 2'196u, 4'392u, 10'981u, 21'962u, 91'395u}) {
      CAPTURE(name, chunks);
      const double other = std::max(Percent(*trace, "lru", chunks), Percent(*trace, "arc", chunks));
      CHECK(Percent(*trace, "reuse", chunks) >= other - 0.5);
    }
  }
}

TEST_CASE("full chunks alone: policies have the hit ratios of another simulator", "[figures]") {
  // eviction.md of the design pages, section 1, at 1, 5, 10, 25 %.
  const auto check = [](const std::string& name, uint64_t distinct, absl::string_view policy,
                        const std::array<double, 4>& percent) {
    auto trace = ReadTrace("tests/traces/" + name + "_trace.jsonl");
    REQUIRE(trace.ok());
    KeepFullChunks(*trace, 512);
    constexpr std::array kShares = {1, 5, 10, 25};
    for (size_t i = 0; i < kShares.size(); ++i) {
      CAPTURE(name, policy, kShares[i]);
      const double ratio = Percent(*trace, policy, (distinct * kShares[i] + 50) / 100);
      CHECK(ratio == Approx(percent[i]).margin(0.3).epsilon(0));
    }
  };
  check("conversation", 182'790, "lru", {5.3, 20.3, 28.3, 35.3});
  check("conversation", 182'790, "arc", {6.5, 21.8, 28.7, 33.7});
  check("conversation", 182'790, "lfu", {5.6, 21.3, 29.1, 35.4});
  check("synthetic", 43'924, "lru", {3.9, 16.1, 27.0, 45.4});
}

TEST_CASE("policies on the conversation trace have the hit ratios of independent simulators",
          "[figures]") {
  CheckAnchors("tests/traces/conversation_trace.jsonl", 12'031, 182'790,
               {{"lru", {5.2, 19.6, 27.9, 35.3, 36.3}},
                {"arc", {6.5, 21.2, 28.4, 33.6, 36.3}},
                {"lfu", {5.5, 20.7, 28.8, 35.4, 36.3}},
                {"min", {24.6, 36.6, 36.6, 36.6, 36.6}}});
}

// At 10 % arc and lfu are 0.3 below the other simulator's result. For arc this depends on the order
// within a request, which definitions leave open: ours touches present chunks, then inserts absent
// ones, head first. A textbook ARC has 26.0 to 26.2 that way, and 26.6 when hits and newcomers are
// taken in one pass from the tail. For lfu it is likely the same; not tried.
TEST_CASE("policies on the synthetic trace have the hit ratios of independent simulators") {
  CheckAnchors("tests/traces/synthetic_trace.jsonl", 3'993, 43'924,
               {{"lru", {3.8, 15.7, 26.2, 44.4, 58.9}},
                {"arc", {4.2, 16.2, 26.5, 45.9, 60.3}},
                {"lfu", {3.7, 15.9, 25.1, 45.5, 59.7}},
                {"min", {18.5, 39.6, 50.6, 62.6, 64.0}}});
}

namespace {

// Simulates a bucket beyond a G2 of this many chunks under LRU.
BucketResult Beyond(std::vector<TraceRequest> requests, uint64_t g2_chunks, BucketOptions options) {
  for (size_t i = 0; i < requests.size(); ++i) requests[i].timestamp = std::chrono::seconds(i);
  SimulatedBucket bucket(std::move(options));
  SimulatedBucket* const buckets[] = {&bucket};
  REQUIRE(SimulateTrace(requests, "lru", g2_chunks, buckets).ok());
  return bucket.result();
}

}  // namespace

TEST_CASE("a bucket has what was pushed out of the node, for its lifetime from the write") {
  const std::vector<TraceRequest> requests = {Chain({1, 2}), Chain({3, 4}), Chain({1, 2, 5})};
  const BucketResult result = Beyond(requests, 2, {.second_use = false});
  CHECK(result.leading_hit_chunks == 2);
  CHECK(result.recalled_chunks == 2);
  CHECK(result.searches == 3);
  CHECK(result.questions == 0);
  CHECK(result.writes == 5);  // a recalled chunk is not offered again
  CHECK(result.written_chunks == 5);
  const BucketResult expired =
      Beyond(requests, 2, {.lifetime = std::chrono::seconds(2), .second_use = false});
  CHECK(expired.recalled_chunks == 0);
  CHECK(expired.written_chunks == 7);
  // Chunks on the node need no bucket; a chunk behind a gap is put, and is there already.
  const BucketResult behind =
      Beyond({Chain({1, 2}), Chain({3, 4}), Chain({9, 2})}, 2, {.second_use = false});
  CHECK(behind.leading_hit_chunks == 0);
  CHECK(behind.writes == 6);
  CHECK(behind.written_chunks == 5);
}

TEST_CASE("with second_use a bucket has what was found in G2 after it was put, once") {
  const BucketResult result =
      Beyond({Chain({1, 2}), Chain({1, 2}), Chain({1, 2}), Chain({3, 4}), Chain({1, 2}),
              Chain({3, 4})}, 2, {.second_use = true});
  CHECK(result.writes == 2);  // 1 and 2, at their second use
  CHECK(result.recalled_chunks == 2);
  CHECK(result.leading_hit_chunks == 6);
}

TEST_CASE("a lookup that lacks few chunks does not ask, and each search has its questions") {
  const auto questions = [](uint64_t wanted, uint64_t there) { return 10 * wanted + there; };
  const std::vector<TraceRequest> requests = {Chain({1}), Chain({2}), Chain({1})};
  CHECK(Beyond(requests, 1, {.second_use = false, .least_chunks = 2}).searches == 0);
  const BucketResult asked =
      Beyond(requests, 1, {.second_use = false, .least_chunks = 1, .questions = questions});
  CHECK(asked.searches == 3);
  CHECK(asked.questions == 31);
}

TEST_CASE("a bucket behind two tiers is asked for what neither has") {
  std::vector<TraceRequest> requests = {Chain({1, 2}), Chain({3, 4}), Chain({1, 2})};
  const auto recalled = [&](uint64_t g3_chunks) {
    SimulatedBucket bucket({.second_use = false});
    TiersOptions options{.g2_chunks = 2, .g3_chunks = g3_chunks};
    options.buckets = {&bucket};
    REQUIRE(SimulateTiers(requests, options).ok());
    return bucket.result().recalled_chunks;
  };
  CHECK(recalled(4) == 0);
  CHECK(recalled(2) == 2);
}

}  // namespace kvkeep
