// Chunks that were written back or put durable survive kill -9. Leases that a client held do not,
// and never turn into bytes of something else.
#include <catch2/catch.hpp>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
using client::LeaseMode;
using client::PutStatus;

TEST_CASE("after kill -9 every chunk that was written back is a hit without a new put") {
  Site site({.g2 = "128MiB", .devices = {{.capacity = "256MiB"}}});
  site.Start();
  std::vector<TestChunk> chunks = Chunks(1, 200, 50'000);
  for (const TestChunk& chunk : Chunks(1000, 40, (2 << 20) + 77)) chunks.push_back(chunk);
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(chunks));
    REQUIRE(site.AwaitClean());
  }
  for (int round = 0; round < 2; ++round) {
    site.Kill();
    site.Start();
    CHECK(site.Counter("recovered_chunks") == chunks.size());
    Engine engine(site);
    // A kill within a device's first second leaves no mark that its records are sure. The daemon
    // then promises each record only after it has read its header, soon after the start.
    CHECK(Eventually([&] { return engine.Find(chunks).any == chunks.size(); }));
    CHECK(engine.Hits(chunks) == chunks.size());
    CHECK(engine.wrong_bytes == 0);
    CHECK(site.Counter("puts_stored") == 0);
  }
}

TEST_CASE(
    "a kill in the middle of puts leaves hits with the right bytes and misses, nothing else") {
  Site site({.g2 = "96MiB", .devices = {{.capacity = "256MiB"}}});
  const std::vector<TestChunk> chunks = Chunks(1, 64, (1 << 20) + 123);
  for (int round = 0; round < 3; ++round) {
    site.Start();
    Engine engine(site);
    REQUIRE(engine.PutAll(chunks));
    site.Kill();  // with whatever is dirty, being written or being committed
    site.Start();
    Engine after(site);
    after.Hits(chunks);
    CHECK(after.wrong_bytes == 0);
    CHECK(site.Counter("corrupt_chunks") == 0);
    REQUIRE(after.PutAll(chunks));
    CHECK(after.Hits(chunks) == chunks.size());
    site.Kill();
  }
}

TEST_CASE("a lease of before the restart is refused, and the client goes on by itself") {
  Site site;
  site.Start();
  Engine engine(site);
  const std::vector<TestChunk> chunks = Chunks(1, 4, 100'000);
  REQUIRE(engine.PutAll(chunks));
  REQUIRE(site.AwaitKept());
  auto found =
      engine.client().Lookup(engine.ns(), KeysOf(chunks), {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  REQUIRE(found->leased_keys == chunks.size());
  site.Kill();
  CHECK(engine.Get(chunks[0]) == GetStatus::kUnfinished);  // away: an error at once, no hang
  site.Start();
  REQUIRE(engine.client().WaitConnected(milliseconds(10'000)));
  CHECK(engine.client().GetStats().sessions_opened == 2);
  CHECK_FALSE(found->lease.alive());
  engine.error = absl::OkStatus();
  CHECK(engine.Get(chunks[0], &found->lease) == GetStatus::kUnfinished);
  CHECK(engine.error.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(engine.Put({100, 1000}).status == PutStatus::kStored);
  CHECK(site.Status().g2().leased_bytes() == 0);
}

TEST_CASE("what was put durable and acknowledged is there after kill -9") {
  Site site;
  const size_t kRounds = 5;
  std::vector<TestChunk> acknowledged;
  for (size_t round = 0; round < kRounds; ++round) {
    site.Start();
    Engine engine(site);
    CHECK(engine.Hits(acknowledged) == acknowledged.size());
    const TestChunk chunk{round, 300'000 * (round + 1)};
    // The last ones are made durable when they are there already, but dirty.
    if (round >= 3) REQUIRE(engine.Put(chunk).status == PutStatus::kStored);
    const client::PutOutcome put = engine.Put(chunk, {.durable = true});
    INFO(put.message);
    REQUIRE(put.status == (round >= 3 ? PutStatus::kPresent : PutStatus::kStored));
    site.Kill();
    acknowledged.push_back(chunk);
  }
  site.Start();
  Engine engine(site);
  CHECK(engine.Hits(acknowledged) == acknowledged.size());
}

TEST_CASE("a durable put over the dirty budget is durable nevertheless") {
  Site site({.g2 = "64MiB", .dirty_budget = "1%"});
  site.Start();
  {
    Engine engine(site);
    const client::PutOutcome put = engine.Put({1, 4 << 20}, {.durable = true});
    INFO(put.message);
    REQUIRE(put.status == PutStatus::kStored);
  }
  site.Kill();
  site.Start();
  CHECK(Engine(site).Get({1, 4 << 20}) == GetStatus::kHit);
}

}  // namespace
}  // namespace kvkeep::e2e
