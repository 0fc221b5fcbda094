// An operator's requests to a store that serves.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kChunkBytes = 2 * kBlockBytes;  // of 4096 bytes, with its header page

uint64_t CountIn(StoreTester& s, uint64_t first, uint64_t end, const char* tier) {
  uint64_t found = 0;
  for (uint64_t name = first; name < end; ++name) found += absl::StrContains(s.Where(name), tier);
  return found;
}

void PutDurably(StoreTester& s, uint64_t first, uint64_t end) {
  for (uint64_t name = first; name < end; ++name) {
    REQUIRE(s.Put(name, 4096, {.durable = true}) == "stored");
    s.Settle();
  }
}

EvictResult Evicted(StoreTester& s, const EvictRequest& request) {
  const auto evicted = s.store().Evict(request);
  REQUIRE(evicted.ok());
  s.store().CheckInvariants();
  s.Settle();
  return *evicted;
}

}  // namespace

TEST_CASE("as much as was asked for goes from one tier, the oldest first, and stays in the other") {
  StoreTester s;
  PutDurably(s, 1, 11);
  REQUIRE(CountIn(s, 1, 11, "23") == 10);
  EvictResult evicted = Evicted(s, {.bytes = 2 * kChunkBytes + 1});
  CHECK(evicted.chunks == 3);
  CHECK(evicted.bytes == 3 * kChunkBytes);
  CHECK(CountIn(s, 1, 4, "2") == 0);
  CHECK(CountIn(s, 1, 4, "3") == 3);
  CHECK(CountIn(s, 4, 11, "2") == 7);
  evicted = Evicted(s, {.of_g3 = true, .tenant = "default", .bytes = kChunkBytes});
  CHECK(evicted.chunks == 1);
  CHECK(CountIn(s, 1, 11, "3") == 9);
  // Everything there is, if more was requested.
  CHECK(Evicted(s, {.bytes = 1 << 30}).chunks == 7);
  CHECK(Evicted(s, {.bytes = 1 << 30}).chunks == 0);
  CHECK(absl::IsNotFound(s.store().Evict({.tenant = "nobody", .bytes = 1}).status()));
}

TEST_CASE("what is leased does not go") {
  StoreTester s;
  PutDurably(s, 1, 5);
  const LeaseId lease = s.Lookup({2}).lease;
  CHECK(Evicted(s, {.bytes = 1 << 30}).chunks == 3);
  CHECK(s.Where(2) == "23");
  CHECK(s.Get(2, lease) == "hit");
}

TEST_CASE("each namespace is told with what it has of each tier, by which name it is open") {
  StoreTester s;
  PutDurably(s, 1, 4);
  Evicted(s, {.bytes = kChunkBytes});
  const std::vector<NamespaceUse> uses = s.store().Namespaces();
  REQUIRE(uses.size() == 1);
  CHECK(uses[0].digest == s.ns);
  CHECK(uses[0].tenant == "default");
  CHECK_FALSE(uses[0].model.empty());
  CHECK(uses[0].sessions == 1);
  CHECK(uses[0].chunks == 3);
  CHECK(uses[0].g2_bytes == 2 * kChunkBytes);
  CHECK(uses[0].g3_bytes == 3 * kChunkBytes);
  s.store().CloseSession(s.session);
  CHECK(s.store().Namespaces()[0].model.empty());
  s.Connect();
}

TEST_CASE("a round of the scrub checks once what G3 alone holds, and ends by itself") {
  StoreTester s;
  PutDurably(s, 1, 6);
  Evicted(s, {.bytes = 1 << 30});
  s.Pass(milliseconds(500));
  REQUIRE(s.counters().scrubbed_chunks == 0);
  s.OnDisk(s.DeviceBlock(3) + 1, 1)[7] ^= std::byte{1};
  s.store().ScrubRound(kMiB);
  CHECK(s.store().snapshot().scrub.asked_for);
  s.Pass(milliseconds(2'000));
  CHECK_FALSE(s.store().snapshot().scrub.asked_for);
  CHECK(s.counters().scrubbed_chunks == 5);
  CHECK(s.counters().scrub_damaged_chunks == 1);
  CHECK(s.counters().scrub_rounds == 1);
  CHECK(s.Get(3) == "miss");
  CHECK(s.Get(4) == "hit");
}

}  // namespace kvkeep
