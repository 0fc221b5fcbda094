// The scrub reads and checks in turn what only G3 holds, within its budget.
#include <catch2/catch.hpp>
#include <chrono>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kChunks = 10;

WorldOptions Scrubbing(uint64_t bytes_per_second) {
  WorldOptions options = SmallWorld();
  options.store.scrub_bytes_per_second = bytes_per_second;
  return options;
}

// Chunks of two blocks that are in G3 alone: the process that put them is gone.
void PutAway(StoreTester& s) {
  for (uint64_t i = 0; i < kChunks; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  s.KillAndStart();
}

TEST_CASE("without a budget nothing is ever read") {
  StoreTester s;
  PutAway(s);
  s.Pass(seconds(60));
  CHECK(s.counters().promotions == 0);
  CHECK(s.counters().scrub_rounds == 0);
}

TEST_CASE("every chunk is read in turn, and G2 is as empty afterwards as it was") {
  StoreTester s(Scrubbing(kMiB));
  PutAway(s);
  s.Pass(seconds(1));
  const StoreCounters counted = s.counters();
  CHECK(counted.scrub_rounds >= 1);
  CHECK(counted.scrubbed_chunks >= kChunks);
  CHECK(counted.scrubbed_bytes == counted.scrubbed_chunks * 4096);
  CHECK(counted.scrub_damaged_chunks == 0);
  s.Settle();
  CHECK(s.store().snapshot().g2.used_bytes == 0);
  for (uint64_t i = 0; i < kChunks; ++i) CHECK(s.Where(i) == "3");
}

TEST_CASE("it reads as much as its budget, however long it had nothing to read") {
  StoreTester s(Scrubbing(2 * 4 * kBlockBytes));  // four chunks of two blocks in a second
  s.Pass(seconds(30));
  PutAway(s);
  s.Pass(seconds(2));
  CHECK(s.counters().scrubbed_chunks >= 4);
  CHECK(s.counters().scrubbed_chunks <= 13);  // at most a second's was left from before; and one
}

TEST_CASE("a chunk that rots is found before anybody asks for it, and is a miss from then on") {
  StoreTester s(Scrubbing(kMiB));
  PutAway(s);
  s.OnDisk(s.DeviceBlock(3), 2)[kBlockBytes + 7] ^= std::byte{1};
  s.Pass(seconds(1));
  CHECK(s.counters().scrub_damaged_chunks == 1);
  CHECK(s.counters().corrupt_chunks == 1);
  CHECK(s.Where(3).empty());
  CHECK(s.Get(3) == "miss");
  CHECK(s.Get(4) == "hit");
}

TEST_CASE("what is in G2 is left alone, and stays there") {
  StoreTester s(Scrubbing(kMiB));
  for (uint64_t i = 0; i < kChunks; ++i) REQUIRE(s.Put(i) == "stored");
  s.Pass(seconds(2));
  CHECK(s.counters().scrub_rounds >= 1);
  CHECK(s.counters().scrubbed_chunks == 0);
  for (uint64_t i = 0; i < kChunks; ++i) CHECK(s.Where(i) == "23");
}

TEST_CASE("a full G2 gives up at most one chunk's worth for it") {
  StoreTester s(Scrubbing(kMiB));
  PutAway(s);
  s.FloodG2();
  const uint64_t full = s.store().snapshot().g2.chunks;
  s.Pass(seconds(2));
  CHECK(s.counters().scrubbed_chunks >= kChunks);
  CHECK(s.store().snapshot().g2.chunks >= full - 1);
}

TEST_CASE("a reader that comes while a chunk is being scrubbed gets it, and it stays in G2") {
  StoreTester s(Scrubbing(kMiB));
  PutAway(s);
  s.world.clock().Advance(milliseconds(100));
  s.store().Tick();  // the first chunk is on its way, nothing runs yet
  ChunkReader reader = s.Pin(0);
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  s.Settle();
  CHECK(s.Bytes(0, reader) == "hit");
  CHECK(s.Where(0) == "23");
}

TEST_CASE("a device that fails the scrub's reads is treated as one that fails a reader's") {
  StoreTester s(Scrubbing(kMiB));
  PutAway(s);
  s.world.device().set_options({.read_error = 1});
  s.Pass(seconds(1));
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOffline);
  const uint64_t tried = s.counters().scrubbed_chunks;
  CHECK(tried >= 1);
  s.Pass(seconds(5));
  CHECK(s.counters().scrubbed_chunks == tried);  // not while it is left alone
}

TEST_CASE("what a tenant left that is no more is passed by, and the scrub goes on with the rest") {
  WorldOptions options = Scrubbing(0);
  options.g2_blocks = 128;
  options.store.tenants = {{.name = "", .g2_segments = 1}, {.name = "blue", .g2_segments = 1}};
  StoreTester s(options);
  for (uint64_t i = 0; i < kChunks; ++i) REQUIRE(s.Put(i) == "stored");
  const auto connect = [&s](uint32_t tenant) {
    s.session = s.store().OpenSession({.client_name = "t", .tenant = TenantId(tenant)}).value();
    s.ns = s.store()
               .OpenNamespace(s.session, {.model = "test", .tokens_per_chunk = 16, .parts = 4})
               .value();
  };
  connect(1);
  for (uint64_t i = 100; i < 108; ++i) REQUIRE(s.Put(i) == "stored");
  s.Settle();
  s.world.Kill();
  SECTION("it left the configuration") {
    s.world.SetTenants({{.name = "", .g2_segments = 2}});
  }
  SECTION("another one has its memory") { s.world.RenameTenant(1, "green"); }
  s.world.Start();
  s.Connect();
  s.store().ScrubRound(kMiB);
  s.Pass(seconds(2));
  CHECK(s.counters().scrub_rounds >= 1);
  CHECK(s.counters().scrubbed_chunks == kChunks);
  CHECK(s.counters().scrub_skipped_chunks == 8);
  for (uint64_t i = 0; i < kChunks; ++i) CHECK(s.Get(i) == "hit");
  // Its name is back, and so are its chunks.
  s.world.Kill();
  s.world.SetTenants(options.store.tenants);
  s.world.Start();
  connect(1);
  for (uint64_t i = 100; i < 108; ++i) CHECK(s.Get(i) == "hit");
}

TEST_CASE("a drain ends the scrub") {
  StoreTester s(Scrubbing(kMiB));
  PutAway(s);
  s.store().BeginDrain();
  s.Pass(seconds(1));
  CHECK(s.counters().scrubbed_chunks == 0);
}

}  // namespace
}  // namespace kvkeep
