// Tenants: their chunks have other names, their G2 is other memory, and none uses up another's.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

// Two segments of 64 blocks: the default tenant's, then that of "blue".
WorldOptions TwoTenants() {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 128;
  options.store.tenants = {{.name = "", .g2_segments = 1}, {.name = "blue", .g2_segments = 1}};
  options.store.max_leased_bytes = 64 * kBlockBytes;
  return options;
}

struct Tenant {
  Tenant(StoreTester* tester, uint32_t number) : store(tester->store()) {
    session = store.OpenSession({.client_name = "t", .tenant = TenantId(number)}).value();
    ns = store.OpenNamespace(session, {.model = "test", .tokens_per_chunk = 16}).value();
  }

  ReserveResult::Outcome Put(uint64_t name, size_t bytes = 4096, bool no_g3 = true) {
    absl::StatusOr<ReserveResult> result =
        store.Reserve(session, {.ns = ns,
                                .key = MakeKey(name),
                                .shape = {.payload_bytes = static_cast<uint32_t>(bytes)},
                                .no_g3 = no_g3});
    REQUIRE(result.ok());
    if (result->outcome == ReserveResult::Outcome::kReserved) {
      result->reservation.Append(MakePayload(name, 1, bytes));
      REQUIRE(result->reservation.Seal({}).ok());
    }
    return result->outcome;
  }
  LookupResult Find(uint64_t name, LeaseMode mode = LeaseMode::kNone) {
    const std::vector<ChunkKey> keys = {MakeKey(name)};
    const std::vector<PartId> parts = {PartId(0)};
    return store
        .Lookup(session, {.chunks = {ns, keys, parts}, .lease_mode = mode, .want_places = true})
        .value();
  }

  Store& store;
  SessionToken session;
  NamespaceDigest ns;
};

}  // namespace

TEST_CASE("the same declaration of two tenants is two namespaces, and neither names the other's") {
  StoreTester s(TwoTenants());
  Tenant red(&s, 0), blue(&s, 1);
  CHECK(red.ns != blue.ns);
  REQUIRE(red.Put(1) == ReserveResult::Outcome::kReserved);
  CHECK(red.Find(1).leading_keys == 1);
  CHECK(blue.Find(1).leading_keys == 0);
  CHECK(blue.Put(1) == ReserveResult::Outcome::kReserved);  // PRESENT would reveal it
  const std::vector<ChunkKey> keys = {MakeKey(1)};
  const std::vector<PartId> parts = {PartId(0)};
  // Knowing the digest does not help.
  CHECK(absl::IsFailedPrecondition(
      s.store().Lookup(blue.session, {.chunks = {red.ns, keys, parts}}).status()));
  CHECK(absl::IsFailedPrecondition(
      s.store().Read(blue.session, {red.ns, MakeKey(1), PartId(0)}, LeaseId(0), false).status()));
}

TEST_CASE("a tenant's chunks lie in its own segments, and its flood pushes out only its own") {
  StoreTester s(TwoTenants());
  Tenant red(&s, 0), blue(&s, 1);
  REQUIRE(red.Put(1) == ReserveResult::Outcome::kReserved);
  for (uint64_t name = 100; name < 400; ++name) {
    REQUIRE(blue.Put(name) == ReserveResult::Outcome::kReserved);
  }
  s.store().CheckInvariants();
  CHECK(red.Find(1).leading_keys == 1);
  const LookupResult held = blue.Find(399, LeaseMode::kLeadingRun);
  REQUIRE(held.places.size() == 1);
  CHECK(held.places[0].extents[0].first.value() >= 64);
  const StoreSnapshot snapshot = s.store().snapshot();
  REQUIRE(snapshot.tenants.size() == 2);
  CHECK(snapshot.tenants[0].g2.used_bytes == 2 * kBlockBytes);
  CHECK(snapshot.tenants[1].g2.used_bytes == 64 * kBlockBytes);
  CHECK(snapshot.g2.used_bytes == 66 * kBlockBytes);
  CHECK(snapshot.g2.capacity_bytes == 128 * kBlockBytes);
}

TEST_CASE("a tenant that leases and reserves all it may leaves the other's share alone") {
  StoreTester s(TwoTenants());
  Tenant red(&s, 0), blue(&s, 1);
  for (uint64_t name = 0; name < 32; ++name) {
    REQUIRE(red.Put(name) == ReserveResult::Outcome::kReserved);
  }
  uint64_t leased = 0;
  for (uint64_t name = 0; name < 32; ++name) {
    leased += red.Find(name, LeaseMode::kLeadingRun).leased_bytes;
  }
  CHECK(leased == 32 * kBlockBytes);  // half of the limit for both
  REQUIRE(blue.Put(7) == ReserveResult::Outcome::kReserved);
  CHECK(blue.Find(7, LeaseMode::kLeadingRun).leased_keys == 1);

  std::vector<ReserveResult> held;
  const auto reserve = [&](Tenant& tenant, uint64_t name) {
    held.push_back(
        s.store()
            .Reserve(tenant.session,
                     {.ns = tenant.ns, .key = MakeKey(name), .shape = {.payload_bytes = 4096}})
            .value());
    return held.back().reason;
  };
  uint64_t name = 1000;
  while (reserve(red, name) == RejectReason::kNone) ++name;
  CHECK(reserve(blue, name) == RejectReason::kNone);
  s.store().CheckInvariants();
}

TEST_CASE("a tenant that opens all the sessions it may leaves the others theirs") {
  WorldOptions options = TwoTenants();
  options.g2_blocks = 4 * 64;
  options.store.tenants[0].g2_segments = 3;
  options.store.max_sessions = 8;
  StoreTester s(options);  // has one
  const auto open = [&](uint32_t tenant) {
    return s.store().OpenSession({.client_name = "t", .tenant = TenantId(tenant)});
  };
  std::vector<SessionToken> red;
  for (int i = 0; i < 5; ++i) red.push_back(open(0).value());
  CHECK(open(0).status() ==
        absl::ResourceExhaustedError("sessions: all 6 of this tenant's part of 8 are open"));
  const SessionToken blue = open(1).value();
  CHECK(open(1).ok());
  CHECK(absl::IsResourceExhausted(open(1).status()));
  s.store().CloseSession(red.back());
  CHECK(absl::IsResourceExhausted(open(1).status()));  // that one was red's
  CHECK(open(0).ok());
  s.store().RevokeSession(blue);
  CHECK(open(1).ok());
}

TEST_CASE("a chunk of G3 comes back into the memory of the tenant that asks for it") {
  StoreTester s(TwoTenants());
  Tenant blue(&s, 1);
  REQUIRE(blue.Put(5, 4096, false) == ReserveResult::Outcome::kReserved);
  s.Settle();
  s.KillAndStart();
  Tenant again(&s, 1);
  CHECK(again.ns == blue.ns);
  const LookupResult found = again.Find(5, LeaseMode::kLeadingRun);
  REQUIRE(found.places.size() == 1);
  CHECK(found.places[0].extents[0].first.value() >= 64);
  CHECK_FALSE(found.places[0].readable);
  s.Settle();
  CHECK(again.Find(5, LeaseMode::kLeadingRun).places[0].readable);
}

TEST_CASE("tenants that the arena has no segments for are refused, as is a tenant unknown") {
  WorldOptions options = TwoTenants();
  StoreTester s(options);
  CHECK(absl::IsInvalidArgument(
      s.store().OpenSession({.client_name = "t", .tenant = TenantId(2)}).status()));
  MemoryArena arena(BlockCount(128), BlockCount(64));
  ManualClock clock;
  SeededRandom random(1);
  const StoreDeps deps{.clock = &clock, .random = &random, .arena = &arena};
  for (const uint64_t segments : {uint64_t{0}, uint64_t{2}, UINT64_MAX}) {
    options.store.tenants[1].g2_segments = segments;
    CHECK(absl::IsInvalidArgument(Store::Create(options.store, deps).status()));
  }
}

TEST_CASE("a session does what it was granted and nothing else, and what it may not is counted") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  const std::vector<ChunkKey> keys = {MakeKey(1)};
  const std::vector<PartId> parts = {PartId(0)};
  const auto as = [&](Grants grants) {
    SessionToken token = s.store().OpenSession({.client_name = "t", .grants = grants}).value();
    REQUIRE(s.store()
                .OpenNamespace(token, {.model = "test", .tokens_per_chunk = 16, .parts = 4})
                .value() == s.ns);
    return token;
  };
  const PutRequest put = {.ns = s.ns, .key = MakeKey(2), .shape = {.payload_bytes = 4096}};
  const ChunkSet chunks{s.ns, keys, parts};

  const SessionToken reader = as({.read = true, .write = false});
  CHECK(s.store().Lookup(reader, {.chunks = chunks})->leading_keys == 1);
  CHECK(s.store().Read(reader, s.Id(1), LeaseId(0), false)->outcome == ReadOutcome::kHit);
  CHECK(s.store().Touch(reader, chunks).ok());
  CHECK(absl::IsPermissionDenied(s.store().Reserve(reader, put).status()));
  CHECK(absl::IsPermissionDenied(s.store().Delete(reader, chunks).status()));
  CHECK(s.counters().denied_calls == 2);
  CHECK(s.Get(1) == "hit");

  const SessionToken writer = as({.read = false, .write = true});
  CHECK(absl::IsPermissionDenied(s.store().Lookup(writer, {.chunks = chunks}).status()));
  CHECK(absl::IsPermissionDenied(s.store().Read(writer, s.Id(1), LeaseId(0), false).status()));
  CHECK(absl::IsPermissionDenied(s.store().Touch(writer, chunks).status()));
  CHECK(absl::IsPermissionDenied(s.store().Prefetch(writer, chunks).status()));
  CHECK(s.counters().denied_calls == 6);
  CHECK(s.store().Reserve(writer, put)->outcome == ReserveResult::Outcome::kReserved);
  CHECK(s.store().Delete(writer, chunks).value() == 1);
  CHECK(s.Get(1) == "miss");
}

}  // namespace kvkeep
