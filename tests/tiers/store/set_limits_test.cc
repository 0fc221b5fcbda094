// Limits that change while the store runs.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

// One tenant with limits of its own, as wide as the store's.
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

StoreOptions Capacities(StoreTester& s, uint64_t g2_blocks, uint64_t g3_blocks = 512) {
  StoreOptions options = s.store().options();
  options.g2_capacity_bytes = g2_blocks * kBlockBytes;
  options.g3_capacity_bytes = {g3_blocks * kBlockBytes};
  return options;
}

// Returns "used of capacity", in blocks.
std::string Used(const TierSnapshot& tier) {
  return absl::StrCat(tier.used_bytes / kBlockBytes, " of ", tier.capacity_bytes / kBlockBytes);
}
std::string G2(StoreTester& s) { return Used(s.store().snapshot().g2); }
std::string G3(StoreTester& s) { return Used(s.store().snapshot().g3); }

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
  REQUIRE(s.store().SetLimits(OneTenant(s, {.g3_quota_bytes = 20 * kBlockBytes})).ok());
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
  REQUIRE(s.store().SetLimits(OneTenant(s, {.g3_quota_bytes = 100 * kBlockBytes})).ok());
  REQUIRE(s.Put(42, 4096, {.durable = true}) == "stored");
  s.Settle();
  CHECK(InG3(s, 31, 43) == 11);
  // A tenant that had a quota may also lose it.
  REQUIRE(s.store().SetLimits(OneTenant(s, {})).ok());
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
  REQUIRE(s.store().SetLimits(OneTenant(s, {.g3_quota_bytes = 1})).ok());
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
  REQUIRE(s.store().SetLimits(OneTenant(s, {.keys_per_second = 10})).ok());
  std::vector<uint64_t> many(20, 0);
  for (uint64_t i = 0; i < many.size(); ++i) many[i] = i + 1;
  s.Lookup(many, LeaseMode::kNone);
  const auto over = [&] {
    return absl::IsResourceExhausted(
        s.store().Read(s.session, s.Id(1), LeaseId(0), false).status());
  };
  CHECK(over());
  REQUIRE(s.store().SetLimits(OneTenant(s, {.keys_per_second = 10})).ok());
  CHECK(over());
  REQUIRE(s.store().SetLimits(OneTenant(s, {.keys_per_second = 0})).ok());
  CHECK_FALSE(over());
  CHECK(s.store().snapshot().tenants[0].keys_per_second == 0);
}

TEST_CASE("who is within the limits of before stays; over the new ones nobody gets more") {
  StoreTester s(Wide());
  StoreOptions options = s.store().options();
  REQUIRE(Open(s) == "ok");
  options.max_sessions = 2;
  REQUIRE(s.store().SetLimits(options).ok());
  CHECK(s.store().options().max_sessions == 2);
  CHECK(Open(s) == "sessions: all 2 are open");
  CHECK(s.Put(1) == "stored");  // open ones serve on
  options.max_sessions = 3;
  REQUIRE(s.store().SetLimits(options).ok());
  CHECK(Open(s) == "ok");

  REQUIRE(s.Put(2) == "stored");
  const LeaseId first = s.Lookup({1}).lease;
  options.max_leases_per_session = 1;
  REQUIRE(s.store().SetLimits(options).ok());
  const auto keys = std::vector<ChunkKey>{MakeKey(2)};
  const std::vector<PartId> parts = {PartId(0)};
  const auto lease = [&] {
    return s.store().Lookup(s.session,
                            {.chunks = {s.ns, keys, parts}, .lease_mode = LeaseMode::kLeadingRun});
  };
  CHECK(absl::IsResourceExhausted(lease().status()));
  CHECK(s.Get(1, first) == "hit");
  options.max_leases_per_session = 2;
  REQUIRE(s.store().SetLimits(options).ok());
  CHECK(lease().ok());

  // Two blocks a chunk: a third lease does not fit into five.
  options.max_leased_bytes = 4 * kBlockBytes;
  options.max_leases_per_session = 10;
  REQUIRE(s.store().SetLimits(options).ok());
  REQUIRE(s.Put(3) == "stored");
  CHECK(s.Lookup({3}).leased_keys == 0);
  options.max_leased_bytes = 6 * kBlockBytes;
  REQUIRE(s.store().SetLimits(options).ok());
  CHECK(s.Lookup({3}).leased_keys == 1);

  options.max_reserved_bytes = 2 * kBlockBytes;
  REQUIRE(s.store().SetLimits(options).ok());
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
  REQUIRE(s.store().SetLimits(options).ok());
  s.Pass(milliseconds(500));
  const uint64_t scrubbed = s.counters().scrubbed_chunks;
  CHECK(scrubbed > 0);
  options.scrub_bytes_per_second = 0;
  REQUIRE(s.store().SetLimits(options).ok());
  s.Pass(milliseconds(500));
  CHECK(s.counters().scrubbed_chunks <= scrubbed + 1);
}

TEST_CASE(
    "a smaller G2 keeps the youngest, now, and a larger one takes more, up to what was built") {
  StoreTester s(Wide());
  for (uint64_t name = 1; name <= 20; ++name) {
    REQUIRE(s.Put(name, 4096, {.no_g3 = true}) == "stored");
  }
  REQUIRE(s.store().snapshot().g2.used_bytes == 40 * kBlockBytes);
  REQUIRE(s.store().SetLimits(Capacities(s, 20)).ok());
  s.store().CheckInvariants();
  CHECK(G2(s) == "20 of 20");
  CHECK(s.Where(10).empty());
  CHECK(s.Where(11) == "2");
  CHECK(s.counters().g2_evictions == 10);
  CHECK(s.store().options().g2_capacity_bytes == 20 * kBlockBytes);
  for (uint64_t name = 21; name <= 30; ++name) {
    REQUIRE(s.Put(name, 4096, {.no_g3 = true}) == "stored");
    CHECK(G2(s) == "20 of 20");
  }
  CHECK(s.Put(31, 20 * kBlockBytes, {.no_g3 = true}) == "no space");
  CHECK(G2(s) == "20 of 20");  // nothing went for it

  REQUIRE(s.store().SetLimits(Capacities(s, 64)).ok());
  for (uint64_t name = 31; name <= 60; ++name) {
    REQUIRE(s.Put(name, 4096, {.no_g3 = true}) == "stored");
  }
  CHECK(G2(s) == "64 of 64");
  const absl::Status more = s.store().SetLimits(Capacities(s, 65));
  CHECK(absl::IsFailedPrecondition(more));
  CHECK(
      absl::StrContains(more.message(), "266240 bytes, is more than the 262144 that were mapped"));
  CHECK(s.store().options().g2_capacity_bytes == 64 * kBlockBytes);
}

TEST_CASE("a G2 that is smaller than what cannot go is refused, with all else that was to change") {
  StoreTester s(Wide());
  for (uint64_t name = 1; name <= 16; ++name) {
    REQUIRE(s.Put(name, 4096, {.no_g3 = true}) == "stored");
  }
  const LeaseId lease = s.Lookup({1, 2, 3, 4, 5}).lease;
  Reservation held;
  REQUIRE(s.Reserve(100, 4096, &held) == "reserved");
  StoreOptions options = Capacities(s, 11);
  options.max_sessions = 5;
  const absl::Status refused = s.store().SetLimits(options);
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(absl::StrContains(
      refused.message(), "of which 45056 bytes would be tenant default's, is less than the 49152"));
  CHECK(G2(s) == "34 of 64");
  CHECK(s.store().options().max_sessions != 5);
  CHECK(s.Where(16) == "2");
  REQUIRE(s.store().SetLimits(Capacities(s, 12)).ok());
  CHECK(G2(s) == "12 of 12");
  CHECK(s.Get(5, lease) == "hit");
  s.store().CheckInvariants();
}

TEST_CASE("what of G2 is leased while room is made stays, and goes when it can") {
  WorldOptions world = Wide();
  world.hold_work = 1;
  StoreTester s(world);
  std::vector<uint64_t> names;
  for (uint64_t name = 1; name <= 16; ++name) {
    REQUIRE(s.Put(name, 4096, {.no_g3 = true}) == "stored");
    names.push_back(name);
  }
  LeaseId lease{0};
  bool asked = false;
  s.world.Kill();
  s.world.SetBetweenSlices([&] {
    if (lease.value() != 0 || !asked) return;
    asked = false;
    lease = s.Lookup(names, LeaseMode::kAllPresent).lease;
  });
  s.world.Start();
  s.Connect();
  for (const uint64_t name : names) REQUIRE(s.Put(name, 4096, {.no_g3 = true}) == "stored");
  asked = true;
  REQUIRE(s.store().SetLimits(Capacities(s, 8)).ok());
  REQUIRE(lease.value() != 0);
  const TierSnapshot over = s.store().snapshot().g2;
  CHECK(over.used_bytes > 8 * kBlockBytes);
  CHECK(over.capacity_bytes == over.used_bytes);  // never more than its capacity
  CHECK(s.Put(100) == "no space");
  s.store().CheckInvariants();
  CHECK(s.store().SetLimits(Capacities(s, 8)).ok());  // other limits may change meanwhile
  CHECK(absl::IsResourceExhausted(s.store().SetLimits(Capacities(s, 7))));
  REQUIRE(s.Release(lease).ok());
  s.Pass(milliseconds(200));
  CHECK(G2(s) == "8 of 8");
  s.store().CheckInvariants();
}

TEST_CASE("each tenant's part of G2 shrinks as the whole does") {
  WorldOptions world = SmallWorld();
  world.g2_blocks = 64;
  world.g2_segment_blocks = 16;
  world.store.tenants = {{.g2_segments = 1}, {.name = "b", .g2_segments = 3}};
  StoreTester s(world);
  StoreOptions options = s.store().options();
  options.g2_capacity_bytes = 32 * kBlockBytes;
  REQUIRE(s.store().SetLimits(options).ok());
  const StoreSnapshot now = s.store().snapshot();
  CHECK(now.tenants[0].g2.capacity_bytes == 8 * kBlockBytes);
  CHECK(now.tenants[1].g2.capacity_bytes == 24 * kBlockBytes);
}

TEST_CASE("a smaller G3 gives up its oldest, and takes no byte more; a larger one takes more") {
  StoreTester s(Wide());
  for (uint64_t name = 1; name <= 40; ++name) {
    REQUIRE(s.Put(name, 4096, {.durable = true}) == "stored");
    s.Settle();
  }
  REQUIRE(InG3(s, 1, 41) == 40);
  s.world.HoldIndex(true);
  REQUIRE(s.store().SetLimits(Capacities(s, 64, 41)).ok());
  s.store().CheckInvariants();
  CHECK(InG3(s, 1, 21) == 0);  // one block of 41 is the device's label
  CHECK(InG3(s, 21, 41) == 20);
  // An evicted chunk is not gone before the index has forgotten it.
  CHECK(G3(s) == "81 of 81");
  s.world.HoldIndex(false);
  s.Settle();
  CHECK(G3(s) == "41 of 41");
  for (uint64_t name = 41; name <= 50; ++name) {
    REQUIRE(s.Put(name, 4096, {.durable = true}) == "stored");
    s.Settle();
    CHECK(s.store().snapshot().devices[0].used_bytes <= 41 * kBlockBytes);
    CHECK(s.Where(name) == "23");
  }
  s.store().CheckInvariants();
  REQUIRE(s.store().SetLimits(Capacities(s, 64, 512)).ok());
  const uint64_t before = InG3(s, 1, 51);
  for (uint64_t name = 51; name <= 70; ++name) {
    REQUIRE(s.Put(name, 4096, {.durable = true}) == "stored");
    s.Settle();
  }
  CHECK(InG3(s, 1, 71) == before + 20);
  CHECK(s.store().snapshot().devices[0].built_bytes == 512 * kBlockBytes);
  const absl::Status more = s.store().SetLimits(Capacities(s, 64, 513));
  CHECK(absl::IsFailedPrecondition(more));
  CHECK(absl::StrContains(more.message(), "2101248 bytes, is more than the 2097152"));
}

TEST_CASE("what of a smaller G3 is being read goes when it was read") {
  StoreTester s(Wide());
  for (uint64_t name = 1; name <= 10; ++name) {
    REQUIRE(s.Put(name, 4096, {.durable = true}) == "stored");
    s.Settle();
  }
  s.FloodG2();
  ChunkReader reader = s.Pin(1);
  REQUIRE(s.store().SetLimits(Capacities(s, 64, 2)).ok());
  s.store().CheckInvariants();
  CHECK(InG3(s, 2, 11) == 0);
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  reader = ChunkReader();
  s.Pass(milliseconds(300));
  CHECK(G3(s) == "1 of 2");
  s.store().CheckInvariants();
}

TEST_CASE("a start with a smaller G3 gives up its oldest") {
  StoreTester s(Wide());
  for (uint64_t name = 1; name <= 40; ++name) {
    REQUIRE(s.Put(name, 4096, {.durable = true}) == "stored");
    s.Settle();
  }
  s.world.SetG3Capacities({41 * kBlockBytes});
  s.KillAndStart();
  s.Settle();
  CHECK(InG3(s, 1, 21) == 0);
  CHECK(InG3(s, 21, 41) == 20);
  CHECK(G3(s) == "41 of 41");
  s.store().CheckInvariants();
}

TEST_CASE("another admission policy holds from then on") {
  StoreTester s(Wide());
  StoreOptions options = s.store().options();
  options.g3_admission = "second_use";
  REQUIRE(s.store().SetLimits(options).ok());
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  CHECK(s.Where(1) == "2");
  CHECK(s.counters().second_use_refusals == 1);
  options.g3_admission = "write_budget";
  options.g3_write_bytes_per_second = kBlockBytes / 1800;  // saves up two blocks in an hour
  REQUIRE(s.store().SetLimits(options).ok());
  for (uint64_t name = 2; name <= 4; ++name) REQUIRE(s.Put(name) == "stored");
  s.Settle();
  CHECK(s.counters().write_budget_refusals == 2);
  CHECK(InG3(s, 2, 5) == 1);
  options.g3_admission = "all";
  REQUIRE(s.store().SetLimits(options).ok());
  s.Touch({1, 3, 4});
  s.Settle();
  CHECK(InG3(s, 1, 5) == 4);
}

}  // namespace kvkeep
