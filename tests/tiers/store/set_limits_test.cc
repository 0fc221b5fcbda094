// Limits that change while the store runs.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

// One tenant with limits of its own, as wide as those of the store.
WorldOptions Wide() {
  WorldOptions options = SmallWorld();
  options.store.tenants = {{.name = "", .g2_segments = 1}};
  return options;
}

StoreOptions OneTenant(StoreTester& s, const TenantOptions& tenant) {
  StoreOptions options = s.store().options();
  options.tenants = {tenant};
  options.tenants[0].g2_segments = 1;
  return options;
}

uint64_t InG3(StoreTester& s, uint64_t first, uint64_t end) {
  uint64_t found = 0;
  for (uint64_t name = first; name < end; ++name) {
    found += absl::StrContains(s.Where(name), "3");
  }
  return found;
}

std::string Open(StoreTester& s) {
  const auto opened = s.store().OpenSession({.client_name = "more"});
  return opened.ok() ? "ok" : std::string(opened.status().message());
}

}  // namespace

TEST_CASE(
    "a smaller quota of G3 makes a tenant's oldest go at once, a larger one lets it have more") {
  StoreTester s(Wide());
  for (uint64_t name = 1; name <= 40; ++name) {
    REQUIRE(s.Put(name, 4096, {.durable = true}) == "stored");
    s.Settle();
  }
  REQUIRE(InG3(s, 1, 41) == 40);
  s.store().SetLimits(OneTenant(s, {.g3_quota_bytes = 20 * kBlockBytes}));
  s.store().CheckInvariants();
  CHECK(s.store().snapshot().tenants[0].g3_used_bytes == 20 * kBlockBytes);
  CHECK(s.store().snapshot().tenants[0].g3_quota_bytes == 20 * kBlockBytes);
  CHECK(s.store().snapshot().tenants[0].counters.g3_quota_evictions == 30);
  CHECK(InG3(s, 1, 31) == 0);
  CHECK(InG3(s, 31, 41) == 10);
  s.Settle();
  REQUIRE(s.Put(41, 4096, {.durable = true}) == "stored");
  s.Settle();
  CHECK(InG3(s, 31, 42) == 10);
  s.store().SetLimits(OneTenant(s, {.g3_quota_bytes = 100 * kBlockBytes}));
  REQUIRE(s.Put(42, 4096, {.durable = true}) == "stored");
  s.Settle();
  CHECK(InG3(s, 31, 43) == 11);
  // And a tenant that had a quota may lose it.
  s.store().SetLimits(OneTenant(s, {}));
  CHECK(s.store().snapshot().tenants[0].g3_quota_bytes == 0);
  s.store().CheckInvariants();
}

TEST_CASE("what of a lowered quota cannot go now goes when it can") {
  StoreTester s(Wide());
  for (uint64_t name = 1; name <= 10; ++name) {
    REQUIRE(s.Put(name, 4096, {.durable = true}) == "stored");
    s.Settle();
  }
  s.FloodG2();
  REQUIRE(s.Where(1) == "3");
  // A promotion under way: this chunk of G3 is being read.
  ChunkReader reader = s.Pin(1);
  s.store().SetLimits(OneTenant(s, {.g3_quota_bytes = 1}));
  s.store().CheckInvariants();
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  reader = ChunkReader();
  s.Pass(milliseconds(300));
  CHECK(s.store().snapshot().tenants[0].g3_used_bytes == 0);
  s.store().CheckInvariants();
}

TEST_CASE("rates come and go; one that stays keeps what is owed of it") {
  StoreTester s(Wide());
  REQUIRE(s.Put(1) == "stored");
  s.store().SetLimits(OneTenant(s, {.keys_per_second = 10}));
  std::vector<uint64_t> many(20, 0);
  for (uint64_t i = 0; i < many.size(); ++i) many[i] = i + 1;
  s.Lookup(many, LeaseMode::kNone);
  const auto over = [&] {
    return absl::IsResourceExhausted(
        s.store().Read(s.session, s.Id(1), LeaseId(0), false).status());
  };
  CHECK(over());
  s.store().SetLimits(OneTenant(s, {.keys_per_second = 10}));
  CHECK(over());
  s.store().SetLimits(OneTenant(s, {.keys_per_second = 0}));
  CHECK_FALSE(over());
  CHECK(s.store().snapshot().tenants[0].keys_per_second == 0);
}

TEST_CASE("who is within the limits of before stays; over the new ones nobody gets more") {
  StoreTester s(Wide());
  StoreOptions options = s.store().options();
  REQUIRE(Open(s) == "ok");
  options.max_sessions = 2;
  s.store().SetLimits(options);
  CHECK(s.store().options().max_sessions == 2);
  CHECK(Open(s) == "sessions: all 2 are open");
  CHECK(s.Put(1) == "stored");  // those that are open serve on
  options.max_sessions = 3;
  s.store().SetLimits(options);
  CHECK(Open(s) == "ok");

  REQUIRE(s.Put(2) == "stored");
  const LeaseId first = s.Lookup({1}).lease;
  options.max_leases_per_session = 1;
  s.store().SetLimits(options);
  const auto keys = std::vector<ChunkKey>{MakeKey(2)};
  const std::vector<PartId> parts = {PartId(0)};
  const auto lease = [&] {
    return s.store().Lookup(s.session,
                            {.chunks = {s.ns, keys, parts}, .lease_mode = LeaseMode::kLeadingRun});
  };
  CHECK(absl::IsResourceExhausted(lease().status()));
  CHECK(s.Get(1, first) == "hit");
  options.max_leases_per_session = 2;
  s.store().SetLimits(options);
  CHECK(lease().ok());

  // Two blocks a chunk: a third lease does not fit into five.
  options.max_leased_bytes = 4 * kBlockBytes;
  options.max_leases_per_session = 10;
  s.store().SetLimits(options);
  REQUIRE(s.Put(3) == "stored");
  CHECK(s.Lookup({3}).leased_keys == 0);
  options.max_leased_bytes = 6 * kBlockBytes;
  s.store().SetLimits(options);
  CHECK(s.Lookup({3}).leased_keys == 1);

  options.max_reserved_bytes = 2 * kBlockBytes;
  s.store().SetLimits(options);
  Reservation held;
  CHECK(s.Reserve(4, 4096, &held) == "reserved");
  Reservation more;
  CHECK(s.Reserve(5, 4096, &more) == "limit");
  s.store().CheckInvariants();
}

TEST_CASE("a scrub begins and ends with its rate") {
  StoreTester s(Wide());
  REQUIRE(s.Put(1, 4096, {.durable = true}) == "stored");
  s.Settle();
  s.FloodG2();
  StoreOptions options = s.store().options();
  s.Pass(milliseconds(500));
  CHECK(s.counters().scrubbed_chunks == 0);
  options.scrub_bytes_per_second = kMiB;
  s.store().SetLimits(options);
  s.Pass(milliseconds(500));
  const uint64_t scrubbed = s.counters().scrubbed_chunks;
  CHECK(scrubbed > 0);
  options.scrub_bytes_per_second = 0;
  s.store().SetLimits(options);
  s.Pass(milliseconds(500));
  CHECK(s.counters().scrubbed_chunks <= scrubbed + 1);
}

}  // namespace kvkeep
