// A bucket over HTTP that is down, hangs, lies, refuses or cuts costs misses: never wrong bytes,
// never a call that does not end, and nothing that the node has. Once it serves again it is used
// again, without a restart.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>

#include "tests/e2e/bucket_server.h"
#include "tests/e2e/g4_place.h"

namespace kvkeep::e2e {
namespace {

constexpr size_t kFaultChunkBytes = 300'000;
constexpr size_t kWorthAsking = 8;  // missing chunks, if a caller names no cost

class FaultNode {
 public:
  FaultNode(const BucketServer& bucket, const FleetFiles& fleet, const std::string& write_rate)
      : site({.g2 = "64MiB", .segment_bytes = "16MiB", .devices = {{.capacity = "96MiB"}},
              .local = true}) {
    site.settings.extra = fleet.Config(bucket, write_rate);
    site.Start();
    engine = std::make_unique<Engine>(site);
  }
  // Searches beyond, and gets the leased chunks. Returns how many are hits with the right bytes.
  size_t Recall(const std::vector<TestChunk>& chunks) {
    return RecallLeading(*engine, chunks, std::chrono::milliseconds(500));
  }

  Site site;
  std::unique_ptr<Engine> engine;
};

}  // namespace

TEST_CASE("whatever a bucket does, lookups and gets end, and no byte is wrong") {
  const FleetFiles fleet;
  BucketServer bucket;
  const std::vector<TestChunk> chunks = Chunks(1, 24, kFaultChunkBytes);
  const std::vector<TestChunk> local = Chunks(500, 8, kFaultChunkBytes);
  {
    FaultNode first(bucket, fleet, "1GiB");
    REQUIRE(first.engine->PutAll(chunks));
    const bool written = Eventually([&] { return bucket.objects() == chunks.size(); });
    INFO(first.site.Log() << first.site.Status().g4().ShortDebugString());
    REQUIRE(written);
    CHECK(first.site.Stop().exit_status == 0);
  }
  const Bucket state =
      GENERATE(Bucket::kRefusesConnections, Bucket::kHangs, Bucket::kAbsent, Bucket::kHalfBusy,
               Bucket::kCuts, Bucket::kFlips, Bucket::kDrips, Bucket::kDenies);
  CAPTURE(static_cast<int>(state));
  FaultNode second(bucket, fleet, "0");
  bucket.state = state;
  REQUIRE(second.engine->PutAll(local));
  const auto began = std::chrono::steady_clock::now();
  for (int round = 0; round < 5; ++round) {
    const size_t hits = second.Recall(chunks);
    CHECK((hits == 0 || state == Bucket::kHalfBusy));
    CHECK(second.engine->Hits(local) == local.size());
  }
  CHECK(second.engine->wrong_bytes == 0);
  // A search of at most 0.5 s each, and the time of gets of what was found.
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK((kSanitized || took < std::chrono::seconds(35)));
  bucket.state = Bucket::kServes;
  // Images that were proven wrong were removed there. The others come, once the bucket is asked
  // again.
  const size_t left = bucket.objects();
  CHECK((left == chunks.size() || state == Bucket::kFlips || state == Bucket::kCuts));
  // A node that was denied asks again after a minute: too long for this test.
  if (left == chunks.size() && state != Bucket::kDenies) {
    // A search that its wait cut short brings a part, and the last few missing chunks are not worth
    // a search.
    const size_t all = chunks.size() - (kWorthAsking - 1);
    size_t most = 0;
    const bool back = Eventually(
        [&] {
          most = std::max(most, second.Recall(chunks));
          return most >= all;
        },
        milliseconds(40'000));
    INFO(most << " of " << all << "; " << second.site.Log()
              << second.site.Status().g4().ShortDebugString());
    CHECK(back);
  }
  CHECK(second.engine->wrong_bytes == 0);
  CHECK(second.site.Stop().exit_status == 0);
}

TEST_CASE("a daemon ends in order while its bucket hangs") {
  const FleetFiles fleet;
  BucketServer bucket;
  FaultNode node(bucket, fleet, "1GiB");
  bucket.state = Bucket::kHangs;
  const std::vector<TestChunk> chunks = Chunks(1, 8, kFaultChunkBytes);
  REQUIRE(node.engine->PutAll(chunks));
  REQUIRE(Eventually([&] { return bucket.requests > 0; }));
  const Ending ending = node.site.Stop();
  CHECK(ending.exit_status == 0);
  bucket.state = Bucket::kServes;
  node.site.Start();
  node.engine = std::make_unique<Engine>(node.site);
  CHECK(node.engine->Hits(chunks) == chunks.size());
}

}  // namespace kvkeep::e2e
