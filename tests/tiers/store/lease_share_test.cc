// What one session takes of what its tenant's leases may hold, where others ask for leases too.
#include <catch2/catch.hpp>
#include <deque>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

constexpr uint64_t kMostLeased = 16;  // chunks, of a payload block and a header page
constexpr uint32_t kLeasedChunk = 4096;

// "" and "blue", who reads of each other and have a segment of 64 blocks each.
WorldOptions FewMayBeLeased() {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 128;
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 128 * kBlockBytes;
  options.store.max_leased_bytes = 128 * kBlockBytes;
  options.store.tenants = {{.name = "", .g2_segments = 1},
                           {.name = "blue", .g2_segments = 1, .readers = {TenantId(0)}}};
  for (TenantOptions& tenant : options.store.tenants) {
    tenant.max_leased_bytes = kMostLeased * 2 * kBlockBytes;
  }
  return options;
}

class LeasingClient {
 public:
  explicit LeasingClient(StoreTester* tester, uint32_t tenant = 0, const std::string& of = "")
      : store_(tester->store()) {
    session_ = store_.OpenSession({.client_name = "t", .tenant = TenantId(tenant)}).value();
    NamespaceSpec spec{.model = "test", .tokens_per_chunk = 16};
    spec.tenant = of;
    ns_ = store_.OpenNamespace(session_, spec).value();
  }
  LeasingClient(const LeasingClient&) = delete;
  LeasingClient& operator=(const LeasingClient&) = delete;
  ~LeasingClient() { store_.CloseSession(session_); }

  void PutAll(uint64_t end) {
    for (uint64_t name = 1; name < end; ++name) {
      auto result = store_.Reserve(
          session_, {.ns = ns_, .key = MakeKey(name), .shape = {.payload_bytes = kLeasedChunk}});
      REQUIRE(result.ok());
      REQUIRE(result->outcome == ReserveResult::Outcome::kReserved);
      result->reservation.Append(MakePayload(name, 1, kLeasedChunk));
      REQUIRE(result->reservation.Seal({}).ok());
    }
  }
  LookupResult Lookup(uint64_t first, uint64_t count, LeaseMode mode) {
    std::vector<ChunkKey> keys;
    for (uint64_t name = first; name < first + count; ++name) keys.push_back(MakeKey(name));
    const std::vector<PartId> parts = {PartId(0)};
    auto result = store_.Lookup(session_, {.chunks = {ns_, keys, parts}, .lease_mode = mode});
    REQUIRE(result.ok());
    store_.CheckInvariants();
    return std::move(*result);
  }
  // How many it got. The lease is the last one.
  uint32_t Take(uint64_t first, uint64_t count) {
    const LookupResult result = Lookup(first, count, LeaseMode::kLeadingRun);
    if (result.leased_keys > 0) leases_.push_back(result.lease);
    return result.leased_keys;
  }
  // The oldest lease.
  void Give(uint32_t keep_keys = 0) {
    REQUIRE(store_.Release(session_, leases_.front(), keep_keys).ok());
    if (keep_keys == 0) leases_.pop_front();
    store_.CheckInvariants();
  }
  void GiveAll() {
    while (!leases_.empty()) Give();
  }
  ChunkReader Read(uint64_t name) {
    auto read = store_.Read(session_, {ns_, MakeKey(name), PartId(0)}, LeaseId(0), false);
    REQUIRE(read.ok());
    REQUIRE(read->outcome == ReadOutcome::kHit);
    return std::move(read->reader);
  }

 private:
  Store& store_;
  SessionToken session_;
  NamespaceDigest ns_;
  std::deque<LeaseId> leases_;
};

}  // namespace

TEST_CASE("a session that leases again what it holds before it lets go of it pays all the same") {
  StoreTester s(FewMayBeLeased());
  LeasingClient greedy(&s), other(&s);
  greedy.PutAll(25);
  CHECK(other.Take(99, 1) == 0);
  CHECK(greedy.Take(1, 24) == 12);
  for (int turn = 0; turn < 8; ++turn) {
    CHECK(greedy.Take(1, 12) == 12);  // costs nothing
    greedy.Give();
    CHECK(greedy.Take(13, 4) == 0);
  }
  CHECK(other.Take(21, 4) == 4);
  greedy.GiveAll();
  CHECK(greedy.Take(1, 24) == 9);  // 3 of the 16 are left free
}

TEST_CASE("a lease that is shortened frees its session's part, when no other lease holds it") {
  StoreTester s(FewMayBeLeased());
  LeasingClient greedy(&s), other(&s);
  greedy.PutAll(25);
  CHECK(other.Take(99, 1) == 0);
  CHECK(greedy.Take(1, 12) == 12);
  CHECK(greedy.Take(1, 12) == 12);
  greedy.Give(4);
  CHECK(greedy.Take(13, 4) == 0);
  greedy.Give();
  CHECK(greedy.Take(13, 4) == 0);
  greedy.Give(4);
  CHECK(greedy.Take(13, 12) == 8);
}

TEST_CASE("who reads first and leases then takes no more than who leases at once") {
  StoreTester s(FewMayBeLeased());
  LeasingClient greedy(&s), other(&s);
  greedy.PutAll(25);
  CHECK(other.Take(99, 1) == 0);
  std::vector<ChunkReader> reading;
  for (uint64_t name = 1; name <= 16; ++name) reading.push_back(greedy.Read(name));
  CHECK(greedy.Take(1, 16) == 8);  // nothing is left free: its equal part
  reading.clear();
  CHECK(greedy.Take(1, 16) == 12);
  CHECK(greedy.Take(13, 4) == 0);
}

TEST_CASE("what another session had leased before counts for who still holds it") {
  StoreTester s(FewMayBeLeased());
  LeasingClient greedy(&s), other(&s);
  greedy.PutAll(25);
  CHECK(other.Take(1, 8) == 8);
  CHECK(greedy.Take(1, 8) == 8);
  other.Give();
  CHECK(greedy.Take(9, 8) == 4);
  CHECK(other.Take(21, 4) == 4);
}

TEST_CASE("a session may have its equal part, however little that leaves, or another's chunks") {
  StoreTester s(FewMayBeLeased());
  LeasingClient first(&s), second(&s);
  first.PutAll(25);
  CHECK(first.Take(1, 16) == 16);  // alone
  CHECK(second.Take(20, 1) == 0);
  CHECK(second.Take(1, 16) == 8);
  first.GiveAll();
  second.GiveAll();
  CHECK(first.Take(1, 16) == 12);
  CHECK(second.Take(17, 8) == 4);  // all that there is
  first.GiveAll();
  CHECK(second.Take(1, 16) == 8);  // with the four it has, three times what it leaves
  CHECK(first.Take(7, 2) == 2);
  {
    LeasingClient third(&s);        // from now on 5 are equal parts
    CHECK(third.Take(13, 8) == 5);  // the fifth is of those that the second has
    second.GiveAll();
    CHECK(third.Take(21, 4) == 4);
  }
}

TEST_CASE("of another tenant's chunks a session pays for each lease, as its tenant does") {
  StoreTester s(FewMayBeLeased());
  LeasingClient blue(&s, 1), greedy(&s, 0, "blue"), other(&s, 0, "blue");
  blue.PutAll(25);
  CHECK(other.Take(99, 1) == 0);
  CHECK(greedy.Take(1, 6) == 6);
  CHECK(greedy.Take(1, 6) == 2);  // half of blue's is never lent
  greedy.GiveAll();
  CHECK(other.Take(1, 4) == 4);
  CHECK(greedy.Take(1, 8) == 4);
}

}  // namespace kvkeep
