#include "tiers/policy/simulate.h"

#include <catch2/catch.hpp>

#include "tiers/policy/trace.h"

namespace kvkeep {
namespace {

TraceRequest Chain(std::vector<uint64_t> ids) { return {.hash_ids = std::move(ids)}; }

// Leading hit chunks of an LRU.
uint64_t Hits(const std::vector<TraceRequest>& requests, uint64_t capacity) {
  const auto result = SimulateTrace(requests, "lru", capacity);
  REQUIRE(result.ok());
  return result->leading_hit_chunks;
}

double HitPercent(const std::vector<TraceRequest>& trace, uint64_t capacity) {
  const auto result = SimulateTrace(trace, "lru", capacity);
  REQUIRE(result.ok());
  return 100 * result->hit_ratio;
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

TEST_CASE("the tail of the longest untouched chain goes first") {
  CHECK(Hits({Chain({1, 2}), Chain({3, 4}), Chain({5}), Chain({1, 2})}, 4) == 1);
  CHECK(Hits({Chain({1, 2}), Chain({3, 4}), Chain({5}), Chain({3, 4})}, 4) == 2);
}

TEST_CASE("a request longer than the tier keeps its head, and only that") {
  CHECK(Hits({Chain({1, 2, 3, 4, 5}), Chain({1, 2, 3, 4, 5})}, 3) == 3);
  CHECK(Hits({Chain({1, 2, 3, 4, 5}), Chain({4}), Chain({5})}, 3) == 0);
  CHECK(Hits({Chain({1, 2}), Chain({1, 2})}, 1) == 1);
  // It starts over a tier full of others and pushes out all of them, but nothing of its own head.
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

TEST_CASE("LRU on the conversation trace has the hit ratios of an independent simulator") {
  const auto trace = ReadTrace("tests/traces/conversation_trace.jsonl");
  REQUIRE(trace.ok());
  REQUIRE(trace->size() == 12'031);
  CHECK(HitPercent(*trace, 1'828) == Approx(5.2).margin(0.2).epsilon(0));
  CHECK(HitPercent(*trace, 9'140) == Approx(19.6).margin(0.2).epsilon(0));
  CHECK(HitPercent(*trace, 18'279) == Approx(27.9).margin(0.2).epsilon(0));
}

TEST_CASE("LRU on the synthetic trace has the hit ratios of an independent simulator") {
  const auto trace = ReadTrace("tests/traces/synthetic_trace.jsonl");
  REQUIRE(trace.ok());
  REQUIRE(trace->size() == 3'993);
  constexpr uint64_t kDistinct = 43'924;
  CHECK(HitPercent(*trace, kDistinct / 100) == Approx(3.8).margin(0.3).epsilon(0));
  CHECK(HitPercent(*trace, kDistinct / 20) == Approx(15.7).margin(0.3).epsilon(0));
  CHECK(HitPercent(*trace, kDistinct / 10) == Approx(26.2).margin(0.3).epsilon(0));
  CHECK(HitPercent(*trace, kDistinct / 4) == Approx(44.4).margin(0.3).epsilon(0));
  CHECK(HitPercent(*trace, kDistinct / 2) == Approx(58.9).margin(0.3).epsilon(0));
}

}  // namespace kvkeep
