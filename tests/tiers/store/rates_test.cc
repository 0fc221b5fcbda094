// Limits on a tenant's requests in a second, and on its leases.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kRatedChunk = 4096;

// "", "blue" and "green" with a segment of 64 blocks each. Blue has limits.
WorldOptions Limited(const TenantOptions& blue) {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 192;
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 192 * kBlockBytes;
  options.store.max_leased_bytes = 192 * kBlockBytes;
  options.store.tenants = {
      {.name = "", .g2_segments = 1}, blue, {.name = "green", .g2_segments = 1}};
  options.store.tenants[1].name = "blue";
  options.store.tenants[1].g2_segments = 1;
  return options;
}

// A client of a tenant, with chunks of one block of payload. Its answers are "ok", "miss", or the
// message of a refusal.
class RatedClient {
 public:
  RatedClient(StoreTester* tester, uint32_t tenant) : tester_(*tester), tenant_(tenant) {
    session_ = store().OpenSession({.client_name = "t", .tenant = TenantId(tenant)}).value();
    ns_ = store().OpenNamespace(session_, {.model = "test", .tokens_per_chunk = 16}).value();
  }

  std::string Put(uint64_t name) {
    absl::StatusOr<ReserveResult> result = store().Reserve(
        session_, {.ns = ns_, .key = MakeKey(name), .shape = {.payload_bytes = kRatedChunk}});
    REQUIRE(result.ok());
    if (result->outcome == ReserveResult::Outcome::kPresent) return "present";
    if (result->outcome == ReserveResult::Outcome::kRejected) {
      CHECK(result->over_rate);
      CHECK(result->reason == RejectReason::kLimit);
      return result->message;
    }
    result->reservation.Append(MakePayload(name, 1, kRatedChunk));
    REQUIRE(result->reservation.Seal({}).ok());
    return "ok";
  }
  std::string Read(uint64_t name, LeaseId lease = LeaseId(0)) {
    const auto read = store().Read(session_, {ns_, MakeKey(name), PartId(0)}, lease, false);
    if (!read.ok()) return Word(read.status());
    return read->outcome == ReadOutcome::kHit ? "ok" : "miss";
  }
  absl::StatusOr<LookupResult> Lookup(uint64_t first, uint64_t count,
                                      LeaseMode mode = LeaseMode::kNone, bool want_places = false,
                                      uint64_t request_id = 0) {
    const auto keys = Keys(first, count);
    return store().Lookup(session_, {.chunks = {ns_, keys, parts_},
                                     .lease_mode = mode,
                                     .client_request_id = request_id,
                                     .want_places = want_places});
  }
  std::string Find(uint64_t first, uint64_t count) { return Word(Lookup(first, count).status()); }
  std::string Touch() { return Word(store().Touch(session_, {ns_, Keys(1, 1), parts_}).status()); }
  std::string Prefetch() {
    return Word(store().Prefetch(session_, {ns_, Keys(1, 1), parts_}).status());
  }
  std::string Delete() {
    return Word(store().Delete(session_, {ns_, Keys(900, 1), parts_}).status());
  }
  std::string Discard(uint64_t bytes, bool within_rate) {
    return Word(store().ChargeDiscarded(session_, bytes, within_rate));
  }
  absl::Status Release(LeaseId lease) { return store().Release(session_, lease, 0); }
  TenantSnapshot Snapshot() { return store().snapshot().tenants[tenant_]; }

 private:
  const std::vector<ChunkKey>& Keys(uint64_t first, uint64_t count) {
    keys_.clear();
    for (uint64_t i = 0; i < count; ++i) keys_.push_back(MakeKey(first + i));
    return keys_;
  }
  static std::string Word(const absl::Status& status) {
    if (status.ok()) return "ok";
    CHECK(absl::IsResourceExhausted(status));
    return std::string(status.message());
  }
  Store& store() { return tester_.store(); }

  StoreTester& tester_;
  const uint32_t tenant_;
  const std::vector<PartId> parts_ = {PartId(0)};
  std::vector<ChunkKey> keys_;
  SessionToken session_;
  NamespaceDigest ns_;
};

std::string OverKeys(int per_second, int wait_ms) {
  return absl::StrCat("keys_per_second: this tenant has used its ", per_second,
                      " a second; come back in ", wait_ms, " ms");
}
std::string OverBytes(uint64_t per_second, uint64_t wait_ms) {
  return absl::StrCat("bytes_per_second: this tenant has used its ", per_second,
                      " a second; come back in ", wait_ms, " ms");
}

}  // namespace

TEST_CASE("over its keys a second every call of a tenant is refused, and nobody else's") {
  StoreTester s(Limited({.keys_per_second = 10}));
  RatedClient blue(&s, 1), blue_too(&s, 1), green(&s, 2);
  CHECK(blue.Put(1) == "ok");
  CHECK(blue.Find(1, 4) == "ok");
  CHECK(blue_too.Find(1, 5) == "ok");
  const std::string over = OverKeys(10, 100);
  CHECK(blue.Find(1, 1) == over);
  CHECK(blue_too.Find(1, 1) == over);  // all of its sessions together
  CHECK(blue.Touch() == over);
  CHECK(blue.Prefetch() == over);
  CHECK(blue.Delete() == over);
  CHECK(blue.Read(1) == over);
  CHECK(blue.Put(1) == over);
  CHECK(blue.Snapshot().counters.key_rate_refusals == 7);
  CHECK(blue.Snapshot().counters.puts_rejected == 1);
  CHECK(blue.Snapshot().keys_per_second == 10);
  for (int i = 0; i < 50; ++i) REQUIRE(green.Find(1, 20) == "ok");
  CHECK(green.Snapshot().counters.key_rate_refusals == 0);
  s.Pass(milliseconds(100));
  CHECK(blue.Put(1) == "present");
  CHECK(blue.Read(1) == over);
  s.Pass(milliseconds(200));
  CHECK(blue.Read(1) == "ok");
  CHECK(blue.Read(77) == "miss");  // is paid for, too
  CHECK(blue.Touch() == over);
}

TEST_CASE("a call larger than a second's keys is served, and the next waits until it is paid off") {
  StoreTester s(Limited({.keys_per_second = 10}));
  RatedClient blue(&s, 1);
  CHECK(blue.Find(1, 110) == "ok");
  CHECK(blue.Find(1, 1) == OverKeys(10, 10'100));
  s.Pass(milliseconds(10'000));
  CHECK(blue.Find(1, 1) == OverKeys(10, 100));
  s.Pass(milliseconds(100));
  CHECK(blue.Find(1, 1) == "ok");
}

TEST_CASE("bytes that nobody keeps are paid for as those that are kept") {
  StoreTester s(Limited({.bytes_per_second = 4 * kRatedChunk}));
  RatedClient blue(&s, 1);
  CHECK(blue.Discard(4 * kRatedChunk, /*within_rate=*/false) == "ok");
  CHECK(blue.Discard(1, /*within_rate=*/false) == OverBytes(4 * kRatedChunk, 1));
  CHECK(blue.Discard(kRatedChunk, /*within_rate=*/true) == "ok");  // Reserve let it go on
  CHECK(absl::StartsWith(blue.Put(1), "bytes_per_second"));
}

TEST_CASE("bytes a second: puts and gets pay for what they move, lookups move nothing") {
  StoreTester s(Limited({.bytes_per_second = 4 * kRatedChunk}));
  RatedClient blue(&s, 1), green(&s, 2);
  CHECK(blue.Put(1) == "ok");
  CHECK(blue.Put(1) == "present");
  CHECK(blue.Put(2) == "ok");
  CHECK(blue.Read(1) == "ok");
  CHECK(blue.Read(99) == "miss");
  CHECK(blue.Read(2) == "ok");
  CHECK(blue.Read(1) == OverBytes(4 * kRatedChunk, 1));
  CHECK(blue.Put(3) == OverBytes(4 * kRatedChunk, 1));
  CHECK(blue.Find(1, 100) == "ok");
  CHECK(blue.Delete() == "ok");
  CHECK(blue.Snapshot().counters.byte_rate_refusals == 2);
  for (uint64_t name = 0; name < 20; ++name) REQUIRE(green.Put(name) == "ok");
  s.Pass(milliseconds(300));
  CHECK(blue.Put(3) == "ok");
  CHECK(blue.Put(4) == "ok");
  CHECK(absl::StartsWith(blue.Put(5), "bytes_per_second"));
}

TEST_CASE("who leases with places pays then, once, and reads what it leased for nothing") {
  StoreTester s(Limited({.bytes_per_second = 16 * kRatedChunk}));
  RatedClient blue(&s, 1);
  for (uint64_t name = 1; name <= 8; ++name) REQUIRE(blue.Put(name) == "ok");
  s.Pass(milliseconds(2'000));
  const auto leased = blue.Lookup(1, 8, LeaseMode::kLeadingRun, true, 5).value();
  CHECK(leased.leased_keys == 8);
  // The same request again, as after a lost reply.
  CHECK(blue.Lookup(1, 8, LeaseMode::kLeadingRun, true, 5).value().lease == leased.lease);
  for (int i = 0; i < 4; ++i) {
    for (uint64_t name = 1; name <= 8; ++name) REQUIRE(blue.Read(name, leased.lease) == "ok");
  }
  CHECK(blue.Lookup(1, 8, LeaseMode::kLeadingRun, true).ok());
  CHECK(absl::IsResourceExhausted(blue.Lookup(1, 1, LeaseMode::kLeadingRun, true).status()));
  CHECK(blue.Read(1) == OverBytes(16 * kRatedChunk, 1));
  CHECK(blue.Read(1, leased.lease) == "ok");
  // Without places nothing was read yet: the lease is free, its reads are not.
  const auto plain = blue.Lookup(1, 8, LeaseMode::kLeadingRun, false).value();
  CHECK(blue.Read(1, plain.lease) == OverBytes(16 * kRatedChunk, 1));
}

TEST_CASE("a read under a lease is not refused for keys: its lookup has paid for them") {
  StoreTester s(Limited({.keys_per_second = 10}));
  RatedClient blue(&s, 1);
  REQUIRE(blue.Put(1) == "ok");
  const auto leased = blue.Lookup(1, 50, LeaseMode::kLeadingRun).value();
  REQUIRE(leased.leased_keys == 1);
  CHECK(blue.Read(1) != "ok");
  CHECK(blue.Read(1, leased.lease) == "ok");
  CHECK(blue.Read(2, leased.lease) == blue.Read(1));  // that lease has not paid for this one
}

TEST_CASE("a lease lifts the limits for its own chunks alone, whoever has pinned the others") {
  StoreTester s(Limited({.keys_per_second = 40}));
  RatedClient blue(&s, 1);
  for (uint64_t name = 1; name <= 8; ++name) REQUIRE(blue.Put(name) == "ok");
  const auto some = blue.Lookup(1, 6, LeaseMode::kLeadingRun).value();
  const auto other = blue.Lookup(7, 50, LeaseMode::kLeadingRun).value();
  REQUIRE(some.leased_keys == 6);
  REQUIRE(other.leased_keys == 2);
  REQUIRE(blue.Read(1) != "ok");  // over its rate
  // In any order.
  for (const uint64_t name : {1, 2, 3, 6, 5, 4, 1}) CHECK(blue.Read(name, some.lease) == "ok");
  for (const uint64_t name : {7, 8}) {
    CHECK(blue.Read(name, other.lease) == "ok");
    CHECK(blue.Read(name, some.lease) == blue.Read(1));
  }
}

TEST_CASE("a tenant's leases hold no more than it may, others' as much as theirs") {
  StoreTester s(Limited({.max_leased_bytes = 4 * 2 * kBlockBytes}));
  RatedClient blue(&s, 1), green(&s, 2);
  for (uint64_t name = 1; name <= 8; ++name) {
    REQUIRE(blue.Put(name) == "ok");
    REQUIRE(green.Put(name) == "ok");
  }
  const auto leased = blue.Lookup(1, 8, LeaseMode::kLeadingRun).value();
  CHECK(leased.leased_keys == 4);
  CHECK(blue.Lookup(5, 1, LeaseMode::kLeadingRun).value().leased_keys == 0);
  CHECK(green.Lookup(1, 8, LeaseMode::kLeadingRun).value().leased_keys == 8);
  REQUIRE(blue.Release(leased.lease).ok());
  CHECK(blue.Lookup(5, 4, LeaseMode::kLeadingRun).value().leased_keys == 4);
  s.store().CheckInvariants();
}

TEST_CASE("what a tenant owes of a rate ends with that rate") {
  StoreTester s(Limited({.keys_per_second = 100}));
  RatedClient blue(&s, 1);
  REQUIRE(blue.Find(1, 10'000) == "ok");
  REQUIRE(blue.Find(1, 1) != "ok");
  const auto set_rate = [&s](uint64_t per_second) {
    StoreOptions options = s.store().options();
    options.tenants[1].keys_per_second = per_second;
    REQUIRE(s.store().SetLimits(options).ok());
  };
  set_rate(100);
  CHECK(blue.Find(1, 1) != "ok");  // it is the same
  set_rate(200);
  CHECK(blue.Find(1, 1) == "ok");
}

}  // namespace kvkeep
