#include "tiers/store/reuse_meter.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/tiers/store/store_tester.h"
#include "tiers/policy/simulate.h"

namespace kvkeep {
namespace {

using std::chrono::seconds;
using store_internal::ReuseMeter;

constexpr char kTrace[] = "tests/traces/conversation_trace.jsonl";
constexpr uint64_t kChunk = 2 << 20;

std::vector<EvictionPolicy::ChainLink> Links(const std::vector<uint64_t>& ids) {
  std::vector<EvictionPolicy::ChainLink> links;
  for (const uint64_t id : ids) links.push_back({.fingerprint = Fingerprint(id)});
  return links;
}

// Without a device; chunks of a header and a block.
WorldOptions MemoryAlone(uint64_t chunks) {
  WorldOptions options = SmallWorld();
  options.g2_blocks = options.g2_segment_blocks = 2 * chunks;
  options.device_blocks = {};
  return options;
}

}  // namespace

// The error that tools/kvkeep/README.md promises.
TEST_CASE("on a whole trace the meter is within 1.5 points of the simulated LRU", "[figures]") {
  const auto trace = ReadTrace(kTrace);
  REQUIRE(trace.ok());
  ReuseMeter meter(uint64_t{1} << 50, seconds(0));
  for (const TraceRequest& request : *trace) {
    meter.OnRequest(Links(request.hash_ids), 0);
    for (const uint64_t id : request.hash_ids) meter.OnStored(Fingerprint(id), kChunk);
  }
  const ReuseSnapshot told = meter.snapshot(seconds(60));
  CHECK(told.sampled_chunks == ReuseMeter::kMostKeys);
  CHECK(told.curve.requests == 12'031);
  CHECK(told.measured_for == seconds(60));
  CHECK(told.curve.mean_bytes() == Approx(kChunk));
  for (const uint64_t chunks : {1'828u, 9'140u, 18'279u, 45'698u, 91'395u}) {
    const double predicted = 100 * told.curve.HitRatio(static_cast<double>(chunks * kChunk));
    const double simulated = 100 * SimulateTrace(*trace, "lru", chunks)->hit_ratio;
    CAPTURE(chunks, predicted, simulated);
    CHECK(std::abs(predicted - simulated) < 1.5);
  }
}

TEST_CASE("of the size that the store has, the curve says what lookups found", "[figures]") {
  const auto trace = ReadTrace(kTrace);
  REQUIRE(trace.ok());
  for (const uint64_t chunks : {1'500u, 6'000u}) {
    StoreTester tester(MemoryAlone(chunks));
    for (size_t i = 0; i < 2'500; ++i) {
      const std::vector<uint64_t>& ids = (*trace)[i].hash_ids;
      const uint32_t found = tester.Lookup(ids, LeaseMode::kNone).leading_keys;
      for (size_t k = found; k < ids.size() && k < chunks / 2; ++k) {
        tester.Put(ids[k], 512,
                   {.parent = k == 0 ? std::nullopt : std::optional<uint64_t>(ids[k - 1])});
      }
    }
    const ReuseSnapshot told = tester.store().reuse();
    const StoreCounters counters = tester.counters();
    CHECK(told.curve.wanted == counters.lookup_keys);
    CHECK(told.leading == counters.lookup_leading_keys);
    CHECK((told.sampled_share < 1) == (chunks == 6'000));  // more than the sample holds
    const double measured =
        100.0 * static_cast<double>(told.leading) / static_cast<double>(told.curve.wanted);
    const double predicted =
        100 * told.curve.HitRatio(static_cast<double>(2 * chunks * kBlockBytes));
    CAPTURE(chunks, measured, predicted);
    CHECK(measured > 3);
    CHECK(std::abs(measured - predicted) < 1);
  }
}

TEST_CASE(
    "lookups count, not their repeats, touches and prefetches; what is deleted is forgotten") {
  StoreTester tester;
  tester.Put(1);
  tester.Lookup({1, 2});
  tester.Touch({1});
  const LookupResult first = tester.Lookup({1}, LeaseMode::kLeadingRun, 7);
  CHECK(tester.Lookup({1}, LeaseMode::kLeadingRun, 7).lease == first.lease);
  ReuseSnapshot told = tester.store().reuse();
  CHECK(told.curve.requests == 2);
  CHECK(told.curve.wanted == 3);
  CHECK(told.leading == 2);
  CHECK(told.curve.cold == 1);
  CHECK(told.curve.first_stored_bytes == 2 * kBlockBytes);
  tester.Delete({1});
  tester.Lookup({1});
  CHECK(tester.store().reuse().curve.cold == 2);
}

TEST_CASE("a clear of everything begins the measurement anew, one of a namespace does not") {
  StoreTester tester;
  tester.Put(1);
  tester.Lookup({1});
  tester.Pass(std::chrono::seconds(5));
  tester.store().Clear(tester.ns);
  ReuseSnapshot told = tester.store().reuse();
  CHECK(told.curve.wanted == 1);
  CHECK(told.measured_for >= seconds(5));
  tester.store().Clear(std::nullopt);
  told = tester.store().reuse();
  CHECK(told.curve.wanted == 0);
  CHECK(told.leading == 0);
  CHECK(told.sampled_chunks == 0);
  CHECK(told.measured_for < seconds(1));
}

TEST_CASE("chunks that a restart found are known, and were not stored anew") {
  StoreTester tester;
  for (const uint64_t name : {1, 2, 3}) tester.Put(name, 4096, {.durable = true});
  tester.Settle();
  tester.KillAndStart();
  tester.Lookup({3});
  tester.Lookup({1});  // behind two others
  const ReuseSnapshot told = tester.store().reuse();
  CHECK(told.leading == 2);
  CHECK(told.curve.cold == 0);
  CHECK(told.curve.first_stored_chunks == 0);
  CHECK(told.curve.TooFar(2.0 * kBlockBytes) > 0.9);
  CHECK(told.curve.TooFar(7.0 * kBlockBytes) == 0);
}

}  // namespace kvkeep
