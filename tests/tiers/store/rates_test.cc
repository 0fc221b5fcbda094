// What a tenant may ask for in a second, and what its leases may hold.
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

namespace {

// One that asks for a key as often as it can, one that asks for a few now and then.
struct Contest {
  explicit Contest(StoreTester* tester, uint64_t often = 1)
      : s(*tester), greedy(tester, 1), modest(tester, 1), often(often) {}
  // A millisecond a step. Of the modest one, how often it was refused.
  uint64_t Go(milliseconds time, uint64_t modest_keys, milliseconds every) {
    uint64_t refused = 0;
    for (milliseconds at(0); at < time; ++at) {
      for (uint64_t i = 0; i < often; ++i) taken += greedy.Find(1, 1) == "ok";
      if (every.count() > 0 && at % every == milliseconds(0)) {
        const bool ok = modest.Find(1, modest_keys) == "ok";
        given += ok ? modest_keys : 0;
        refused += !ok;
      }
      s.world.clock().Advance(milliseconds(1));
    }
    return refused;
  }
  StoreTester& s;
  RatedClient greedy, modest;
  const uint64_t often;
  uint64_t taken = 0, given = 0;
};

}  // namespace

TEST_CASE("a session takes all of its tenant's rate while it asks alone, else what others leave") {
  StoreTester s(Limited({.keys_per_second = 100}));
  Contest contest(&s);
  CHECK(contest.Go(milliseconds(5'000), 0, milliseconds(0)) == 0);
  CHECK(contest.taken >= 590);  // with what was saved
  CHECK(contest.taken <= 601);
  // The other one comes: what was saved is gone, but not for long.
  CHECK(contest.Go(milliseconds(2'000), 4, milliseconds(100)) <= 2);
  contest.taken = contest.given = 0;
  // From then on it gets all that it asks for, less than its half, and the first one the rest.
  CHECK(contest.Go(milliseconds(10'000), 4, milliseconds(100)) == 0);
  CHECK(contest.given == 400);
  CHECK(contest.taken >= 550);
  CHECK(contest.taken <= 610);
  contest.taken = 0;
  CHECK(contest.Go(milliseconds(5'000), 0, milliseconds(0)) == 0);
  CHECK(contest.taken >= 490);
}

TEST_CASE("two sessions that want all of it have half each, however often one of them asks") {
  StoreTester s(Limited({.keys_per_second = 100}));
  Contest contest(&s, /*often=*/20);
  contest.Go(milliseconds(2'000), 1, milliseconds(3));
  contest.taken = contest.given = 0;
  contest.Go(milliseconds(10'000), 1, milliseconds(3));
  CHECK(contest.taken + contest.given >= 940);
  CHECK(contest.taken + contest.given <= 1'010);
  CHECK(contest.given >= 450);
  std::string why;
  for (int i = 0; i < 200 && !absl::StrContains(why, "share"); ++i) why = contest.greedy.Find(1, 1);
  CHECK(absl::StartsWith(why,
                         "keys_per_second: this session has used its share of its tenant's "
                         "100 a second, for which 2 ask; come back in "));
}

TEST_CASE("a call far above its share is paid by who made it, not by the others of its tenant") {
  StoreTester s(Limited({.keys_per_second = 100}));
  Contest contest(&s);
  contest.Go(milliseconds(2'000), 1, milliseconds(10));
  for (int i = 0; i < 1'000 && contest.greedy.Find(1, 300) != "ok"; ++i) {
    s.world.clock().Advance(milliseconds(1));
  }
  contest.taken = contest.given = 0;
  // Three seconds' worth at once: nobody has anything until that has come in; then it is its turn.
  contest.Go(milliseconds(6'000), 1, milliseconds(10));
  CHECK(contest.given >= 180);
  CHECK(contest.taken <= 120);
}

namespace {

// Both want all of it for ten seconds, and `first` asks less often and later. How many keys it got.
uint64_t GotAmongTwo(StoreTester& s, RatedClient& first, RatedClient& second) {
  uint64_t got = 0;
  while (second.Find(1, 1) == "ok") continue;  // what was saved
  for (int ms = 0; ms < 10'000; ++ms) {
    for (int i = 0; i < 20; ++i) second.Find(1, 1);
    got += first.Find(1, 1) == "ok";
    s.world.clock().Advance(milliseconds(1));
  }
  return got;
}

void SetKeyRate(StoreTester& s, uint64_t per_second) {
  StoreOptions options = s.store().options();
  options.tenants[1].keys_per_second = per_second;
  REQUIRE(s.store().SetLimits(options).ok());
}

}  // namespace

TEST_CASE("who took what others left has its share when they want theirs") {
  StoreTester s(Limited({.keys_per_second = 100}));
  RatedClient first(&s, 1), second(&s, 1);
  uint64_t taken = 0;
  for (int ms = 0; ms < 60'000; ++ms) {
    if (ms % 500 == 0) second.Find(1, 1);
    taken += first.Find(1, 1) == "ok";
    s.world.clock().Advance(milliseconds(1));
  }
  CHECK(taken >= 5'800);
  CHECK(GotAmongTwo(s, first, second) >= 450);
}

TEST_CASE("what a session owes of a rate ends with that rate") {
  SECTION("there was none for a while") {
    StoreTester s(Limited({.keys_per_second = 100}));
    RatedClient first(&s, 1), second(&s, 1);
    REQUIRE(first.Find(1, 1) == "ok");
    SetKeyRate(s, 0);
    REQUIRE(first.Find(1, 10'000) == "ok");
    s.world.clock().Advance(milliseconds(2'000));  // nobody has asked in this second
    SetKeyRate(s, 100);
    CHECK(GotAmongTwo(s, first, second) >= 450);
  }
  SECTION("it is a much lower one") {
    StoreTester s(Limited({.keys_per_second = 10'000}));
    RatedClient first(&s, 1), second(&s, 1);
    REQUIRE(first.Find(1, 60'000) == "ok");
    s.world.clock().Advance(milliseconds(2'000));  // nobody has asked in this second
    SetKeyRate(s, 100);
    CHECK(GotAmongTwo(s, first, second) >= 450);
  }
}

TEST_CASE("after a change of the rate those that ask are counted anew, within a second too") {
  StoreTester s(Limited({.keys_per_second = 100}));
  RatedClient first(&s, 1), second(&s, 1);
  REQUIRE(first.Find(1, 1) == "ok");
  REQUIRE(second.Find(1, 1) == "ok");
  SetKeyRate(s, 200);
  REQUIRE(second.Find(1, 1) == "ok");
  uint64_t taken = 0;
  while (first.Find(1, 1) == "ok") ++taken;
  CHECK(taken <= 100);
}

TEST_CASE("of bytes, too, every session has its share") {
  StoreTester s(Limited({.bytes_per_second = 100 * kRatedChunk}));
  RatedClient greedy(&s, 1), modest(&s, 1);
  REQUIRE(greedy.Put(1) == "ok");
  uint64_t taken = 0, given = 0;
  for (int ms = 0; ms < 12'000; ++ms) {
    if (ms == 2'000) taken = given = 0;
    for (int i = 0; i < 10; ++i) taken += greedy.Read(1) == "ok";
    if (ms % 3 == 0) given += modest.Read(1) == "ok";
    s.world.clock().Advance(milliseconds(1));
  }
  CHECK(taken + given >= 940);
  CHECK(taken + given <= 1'010);
  CHECK(given >= 450);
}

TEST_CASE("a session leaves others of its tenant some of what leases may hold; alone it has all") {
  constexpr uint64_t kMost = 16;
  StoreTester s(Limited({.max_leased_bytes = kMost * 2 * kBlockBytes}));
  RatedClient greedy(&s, 1), green(&s, 2);
  for (uint64_t name = 1; name <= 24; ++name) REQUIRE(greedy.Put(name) == "ok");
  const auto alone = greedy.Lookup(1, 24, LeaseMode::kLeadingRun).value();
  CHECK(alone.leased_keys == kMost);
  {
    // What it holds it keeps, whoever comes; but it gets no more before it has given some back.
    RatedClient other(&s, 1);
    CHECK(other.Lookup(24, 1, LeaseMode::kLeadingRun).value().leased_keys == 0);
    CHECK(greedy.Lookup(20, 1, LeaseMode::kLeadingRun).value().leased_keys == 0);
    REQUIRE(greedy.Release(alone.lease).ok());
    const auto first = greedy.Lookup(1, 24, LeaseMode::kLeadingRun).value();
    CHECK(first.leased_keys == kMost * 3 / 4);
    CHECK(greedy.Lookup(20, 1, LeaseMode::kLeadingRun).value().leased_keys == 0);
    const auto second = other.Lookup(17, 8, LeaseMode::kLeadingRun).value();
    CHECK(second.leased_keys == 4);  // of its half what is left
    CHECK(other.Lookup(1, 12, LeaseMode::kLeadingRun).value().leased_keys == 4);  // its half
    // What it holds itself costs it nothing more.
    CHECK(greedy.Lookup(1, 12, LeaseMode::kLeadingRun).value().leased_keys == 12);
    s.store().CheckInvariants();
    RatedClient third(&s, 1);
    CHECK(third.Lookup(24, 1, LeaseMode::kLeadingRun).value().leased_keys == 0);
    REQUIRE(greedy.Release(first.lease).ok());
    s.store().CheckInvariants();
  }
}

}  // namespace kvkeep
