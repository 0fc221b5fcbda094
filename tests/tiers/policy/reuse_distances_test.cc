#include "tiers/policy/reuse_distances.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <list>
#include <map>
#include <random>

namespace kvkeep {
namespace {

constexpr uint64_t kSize = 1 << 20;

class Tester {
 public:
  explicit Tester(ReuseDistances::Options options) : distances(options) {}
  // Asks for them, and stores missing ones.
  void Request(const std::vector<uint64_t>& ids, uint64_t bytes = kSize) {
    Ask(ids);
    for (const uint64_t id : ids) distances.OnStored(Fingerprint(id), bytes);
  }
  void Ask(const std::vector<uint64_t>& ids) {
    std::vector<EvictionPolicy::ChainLink> chain;
    for (const uint64_t id : ids) chain.push_back({.fingerprint = Fingerprint(id)});
    distances.OnRequest(chain);
  }
  // Returns the chunks that were found in a tier of this many of kSize.
  double Hits(double chunks) const {
    const ReuseCurve& curve = distances.curve();
    return curve.HitRatio(chunks * kSize) * static_cast<double>(curve.wanted);
  }
  ReuseDistances distances;
};

}  // namespace

TEST_CASE("a bucket ends where the next one begins, and holds what is below its end") {
  for (uint64_t distance = 1; distance < uint64_t{1} << 62; distance += 1 + distance / 7) {
    const size_t bucket = ReuseCurve::BucketOf(distance);
    CAPTURE(distance, bucket);
    CHECK(static_cast<double>(distance) <= ReuseCurve::BoundOf(bucket));
    if (bucket > 0) CHECK(static_cast<double>(distance) >= ReuseCurve::BoundOf(bucket - 1));
  }
  CHECK(ReuseCurve::BucketOf(UINT64_MAX) == ReuseCurve::kBuckets - 1);
  CHECK(ReuseCurve::BoundOf(0) == 4096);
  CHECK(ReuseCurve::BoundOf(16) == 8192);
}

TEST_CASE("a chunk's distance is what was used since, and itself") {
  Tester tester({});
  tester.Request({1});
  tester.Request({2});
  tester.Request({3});
  tester.Ask({1});  // behind 3 and 2
  CHECK(tester.Hits(2.9) < 0.1);
  CHECK(tester.Hits(3.2) == Approx(1));
  CHECK(tester.distances.curve().cold == 3);
  tester.Ask({1});
  CHECK(tester.Hits(1.1) == Approx(1));
}

TEST_CASE("a request is measured before it moves, and its head is the youngest then") {
  Tester tester({});
  tester.Request({1, 2, 3});
  tester.Ask({1, 2, 3});  // 1, 2 and 3 chunks away: not 3, 3 and 3
  CHECK(tester.Hits(1.1) == Approx(1));
  CHECK(tester.Hits(2.2) == Approx(2));
  CHECK(tester.Hits(3.2) == Approx(3));
}

TEST_CASE("what was asked for and never stored takes no space and is no hit") {
  Tester tester({});
  tester.Request({1});
  tester.Ask({2, 3, 4});
  tester.Ask({2});
  CHECK(tester.distances.curve().cold == 5);
  tester.Ask({1});
  CHECK(tester.Hits(1.1) == Approx(1));
}

TEST_CASE("chunks count with their bytes, and once as stored") {
  Tester tester({});
  tester.Request({1}, 8 * kSize);
  tester.Request({2}, 2 * kSize);
  tester.Request({1}, 8 * kSize);
  const ReuseCurve& curve = tester.distances.curve();
  CHECK(curve.TooFar(9.9 * kSize) > 0.9);
  CHECK(curve.TooFar(11.0 * kSize) == 0);
  CHECK(curve.mean_bytes() == Approx(5 * kSize));
  CHECK(curve.StoredChunks(20.0 * kSize) == 2);
  CHECK(curve.StoredChunks(1.0 * kSize) == 3);  // 1 was lost, and came again
}

TEST_CASE("what was there before is known by its age, and is not counted as stored") {
  Tester tester({});
  for (const uint64_t id : {1, 2, 3}) tester.distances.OnFound(Fingerprint(id), kSize);
  CHECK(tester.distances.curve().first_stored_chunks == 0);
  tester.Ask({2});
  CHECK(tester.distances.curve().cold == 0);
  CHECK(tester.Hits(1.9) < 0.1);
  CHECK(tester.Hits(2.2) == Approx(1));
}

TEST_CASE("a chunk that was removed is cold when it comes again") {
  Tester tester({});
  tester.Request({1});
  tester.distances.OnRemoved(Fingerprint(1));
  tester.distances.OnRemoved(Fingerprint(7));  // never seen
  CHECK(tester.distances.size() == 0);
  tester.Request({1});
  CHECK(tester.distances.curve().cold == 2);
}

TEST_CASE("after Clear nothing is known, and all is sampled again") {
  Tester tester({.most_keys = 4});
  for (uint64_t id = 0; id < 100; ++id) tester.Request({id});
  CHECK(tester.distances.share() < 0.5);
  tester.distances.Clear();
  CHECK(tester.distances.share() == 1);
  CHECK(tester.distances.curve().wanted == 0);
  tester.Request({1});
  tester.Ask({1});
  CHECK(tester.Hits(1.1) == Approx(1));
}

TEST_CASE("what lies too far back is forgotten, so that the share that is sampled stays") {
  Tester tester({.most_keys = 64, .farthest_bytes = 32 * kSize});
  for (uint64_t id = 0; id < 10'000; ++id) tester.Request({id});
  CHECK(tester.distances.share() == 1);
  CHECK(tester.distances.size() == 32);
  tester.Ask({9'990});
  CHECK(tester.Hits(20) == Approx(1));
  tester.Ask({1});
  CHECK(tester.distances.curve().cold == 10'001);
}

// Compares with a list, for chains that share prefixes; more requests than places.
TEST_CASE("with room for all keys every distance is exact") {
  Tester tester({.most_keys = 500});
  std::list<uint64_t> stack;           // youngest first
  std::map<uint64_t, double> at_most;  // chunks, by distance
  std::mt19937 random(7);
  double wanted = 0;
  for (int i = 0; i < 5'000; ++i) {
    const uint64_t chain = std::min(random() % 60, random() % 60);
    std::vector<uint64_t> ids;
    for (uint64_t depth = 0; depth <= random() % 6; ++depth) ids.push_back(chain * 8 + depth);
    for (const uint64_t id : ids) {
      const auto found = std::find(stack.begin(), stack.end(), id);
      if (found != stack.end()) ++at_most[1 + std::distance(stack.begin(), found)];
    }
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      stack.remove(*id);
      stack.push_front(*id);
    }
    wanted += static_cast<double>(ids.size());
    tester.Request(ids);
  }
  REQUIRE(tester.distances.share() == 1);
  for (const double chunks : {16, 64, 128, 256}) {  // ends of buckets
    double exact = 0;
    for (const auto& [distance, count] : at_most) exact += distance < chunks ? count : 0;
    CAPTURE(chunks);
    CHECK(tester.distances.curve().HitRatio(chunks * kSize) == Approx(exact / wanted));
  }
}

TEST_CASE("however many chunks come, so many keys are kept, and the sample keeps its measure") {
  Tester tester({.most_keys = 1'000});
  constexpr uint64_t kIds = 50'000;
  for (int round = 0; round < 3; ++round) {
    for (uint64_t id = 0; id < kIds; ++id) tester.Request({id});
  }
  CHECK(tester.distances.size() == 1'000);
  CHECK(tester.distances.share() == Approx(1'000.0 / kIds).epsilon(0.1));
  // All come again after all others, so a smaller tier would have kept none.
  CHECK(tester.distances.curve().HitRatio(0.8 * kIds * kSize) < 0.1);
  CHECK(tester.distances.curve().HitRatio(1.2 * kIds * kSize) == Approx(2.0 / 3).margin(0.1));
}

}  // namespace kvkeep
