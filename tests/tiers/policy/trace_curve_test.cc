#include "tiers/policy/trace_curve.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "tiers/policy/simulate.h"

namespace kvkeep {
namespace {

constexpr uint64_t kChunk = 2 << 20;

}  // namespace

TEST_CASE("the facts of a trace are counted") {
  const std::vector<TraceRequest> trace = {
      {.timestamp = std::chrono::milliseconds(1000), .input_tokens = 7, .hash_ids = {1, 2}},
      {.timestamp = std::chrono::milliseconds(3500), .input_tokens = 5, .hash_ids = {1, 3}}};
  const TraceFacts facts = FactsOf(trace);
  CHECK(facts.requests == 2);
  CHECK(facts.chunk_refs == 4);
  CHECK(facts.distinct_chunks == 3);
  CHECK(facts.input_tokens == 12);
  CHECK(facts.seconds == 2.5);
  CHECK(FactsOf({}).seconds == 0);
}

// The errors that tools/kvkeep/README.md promises.
TEST_CASE("the curve of a trace is close to the simulated LRU, the closer the more is sampled",
          "[figures]") {
  struct Bound {
    const char* trace;
    uint32_t keys;
    double points;
  };
  for (const Bound& bound : {Bound{"conversation", 8'192, 1}, Bound{"conversation", 65'536, 0.2},
                             Bound{"synthetic", 8'192, 1.5}, Bound{"synthetic", 65'536, 0.2}}) {
    const auto trace = ReadTrace(absl::StrCat("tests/traces/", bound.trace, "_trace.jsonl"));
    REQUIRE(trace.ok());
    const TraceFacts facts = FactsOf(*trace);
    const ReuseCurve curve = CurveOf(*trace, kChunk, bound.keys);
    CHECK(curve.wanted == facts.chunk_refs);
    for (const uint64_t percent : {1, 5, 10, 25, 50, 100}) {
      const uint64_t chunks = facts.distinct_chunks * percent / 100;
      const double predicted = 100 * curve.HitRatio(static_cast<double>(chunks * kChunk));
      const double simulated = 100 * SimulateTrace(*trace, "lru", chunks)->hit_ratio;
      CAPTURE(bound.trace, bound.keys, percent, predicted, simulated);
      CHECK(std::abs(predicted - simulated) < bound.points);
    }
  }
}

TEST_CASE("what two tiers hit and write follows from the curve of one") {
  const auto trace = ReadTrace("tests/traces/conversation_trace.jsonl");
  REQUIRE(trace.ok());
  const ReuseCurve curve = CurveOf(*trace, kChunk, 8192);
  const auto result =
      SimulateTiers(*trace, {.g2_chunks = 3'000, .g3_chunks = 20'000, .chunk_bytes = kChunk});
  REQUIRE(result.ok());
  const double g2 = 100 * static_cast<double>(result->g2_hit_chunks) /
                    static_cast<double>(result->trace.chunk_refs);
  CHECK(std::abs(100 * curve.HitRatio(3'000.0 * kChunk) - g2) < 1);
  CHECK(std::abs(curve.HitRatio(20'000.0 * kChunk) - result->trace.hit_ratio) < 0.01);
  const double written = static_cast<double>(result->g3_written_bytes) / kChunk;
  CHECK(curve.StoredChunks(20'000.0 * kChunk) == Approx(written).epsilon(0.02));
}

}  // namespace kvkeep
