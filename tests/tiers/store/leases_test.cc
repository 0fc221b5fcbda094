#include "tiers/store/leases.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/sim/payload.h"

namespace kvkeep::store_internal {
namespace {

constexpr TenantId kLeaseA(0), kLeaseB(1);
const SessionToken kLeasesOne{.bytes = {1}}, kLeasesTwo{.bytes = {2}}, kLeasesOther{.bytes = {3}};
constexpr uint64_t kLeaseBlocks = 2;                          // a block of payload, a header
constexpr uint64_t kLeaseBytes = kLeaseBlocks * kBlockBytes;  // of its image
constexpr uint32_t kMostLeases = 2;                           // of a session

// A has the sessions one and two, B the other one. Each tenant's leases may hold eight chunks.
struct LeasesWorld {
  LeasesWorld() {
    for (const uint64_t first : {0, 64}) {
      pools.push_back(std::make_unique<G2Pool>(
          "", BlockNumber(first), BlockCount(64), BlockCount(64),
          G2Pool::Limits{.capacity_blocks = 64, .leased_blocks = 8 * kLeaseBlocks},
          MakeEvictionPolicy("lru", {.max_chunks = 64}), nullptr));
    }
    book.Open(kLeasesOne, kLeaseA);
    book.Open(kLeasesTwo, kLeaseA);
    book.Open(kLeasesOther, kLeaseB);
  }
  ChunkSlot Add(TenantId owner) {
    const ChunkSlot slot =
        table.Create({{}, MakeKey(next_name++), PartId(0)}, {.payload_bytes = kBlockBytes});
    table.at(slot).tenant = owner;
    return slot;
  }
  // Grants as Granter does. Returns false if it may not.
  bool Hold(const SessionToken& session, ChunkSlot slot) {
    LeaseHolder& holder = *book.of(session);
    if (!book.MayHold(holder, slot)) return false;
    book.Hold(holder, slot);
    Chunk& chunk = table.at(slot);
    if (chunk.pins++ == 0) pool(chunk.tenant).pinned_blocks.Take(chunk.blocks());
    return true;
  }
  void LetGo(LeaseHolder& holder, ChunkSlot slot) {
    book.LetGo(holder, slot);
    Chunk& chunk = table.at(slot);
    if (--chunk.pins == 0) pool(chunk.tenant).pinned_blocks.Give(chunk.blocks());
  }
  // Returns how many new chunks of its tenant the session may hold in addition.
  int HoldAll(const SessionToken& session, TenantId owner) {
    int held = 0;
    while (Hold(session, Add(owner))) ++held;
    return held;
  }
  // Makes a lease on chunks, each a key, that are held now.
  LeaseId Grant(const SessionToken& session, const std::vector<ChunkSlot>& slots,
                uint64_t request = 0) {
    Lease lease{.client_request_id = request, .keys = static_cast<uint32_t>(slots.size())};
    for (uint32_t i = 0; i < slots.size(); ++i) {
      REQUIRE(Hold(session, slots[i]));
      lease.entries.push_back({slots[i], i, i});
      lease.bytes += kLeaseBytes;
    }
    return book.File(*book.of(session), std::move(lease));
  }
  G2Pool& pool(TenantId tenant) { return *pools[tenant.value()]; }

  StoreCounters counters;
  ChunkTable table{std::make_shared<SlotArrays>(5000), 7};
  LeaseBook::Pools pools;
  LeaseBook book{kMostLeases, &table, &pools, &counters};
  uint64_t next_name = 0;
};

}  // namespace

TEST_CASE("a lease is found by its session alone, by its number and by its request") {
  LeasesWorld w;
  const LeaseId lease = w.Grant(kLeasesOne, {w.Add(kLeaseA), w.Add(kLeaseA)}, 77);
  w.book.CheckInvariants();
  CHECK(w.counters.leases_granted == 1);
  REQUIRE(w.book.Find(kLeasesOne, lease) != nullptr);
  CHECK(w.book.Find(kLeasesOne, lease)->entries.size() == 2);
  CHECK(w.book.Find(kLeasesTwo, lease) == nullptr);
  CHECK(w.book.of(kLeasesOne)->FindRequest(77) == lease);
  CHECK(w.book.of(kLeasesTwo)->FindRequest(77) == LeaseId(0));
  CHECK(w.book.of(kLeasesOne)->leased_bytes() == 2 * kLeaseBytes);
}

TEST_CASE("a request without a number finds no lease, whatever was granted to such ones") {
  LeasesWorld w;
  const LeaseId one = w.Grant(kLeasesOne, {w.Add(kLeaseA)});
  const LeaseId two = w.Grant(kLeasesOne, {w.Add(kLeaseA)});
  CHECK(one != two);
  CHECK(w.book.of(kLeasesOne)->FindRequest(0) == LeaseId(0));
  w.book.CheckInvariants();
}

TEST_CASE("a lease is given up from its end, or taken whole, and then is not found any more") {
  LeasesWorld w;
  const std::vector<ChunkSlot> slots = {w.Add(kLeaseA), w.Add(kLeaseA), w.Add(kLeaseA)};
  const LeaseId lease = w.Grant(kLeasesOne, slots, 77);
  LeaseHolder& holder = *w.book.of(kLeasesOne);
  holder.LimitKeys(lease, 2);
  holder.LimitKeys(lease, 3);  // never more again
  CHECK(holder.Find(lease)->keys == 2);
  const Lease::Entry last = holder.TakeLast(lease, kLeaseBytes);
  CHECK(last.slot == slots[2]);
  w.LetGo(holder, last.slot);
  CHECK(holder.leased_bytes() == 2 * kLeaseBytes);
  CHECK(holder.Find(lease)->bytes == 2 * kLeaseBytes);
  w.book.CheckInvariants();

  const Lease taken = holder.Take(lease);
  CHECK(taken.entries.size() == 2);
  CHECK(holder.Find(lease) == nullptr);
  CHECK(holder.FindRequest(77) == LeaseId(0));
  CHECK(holder.leased_bytes() == 0);
  CHECK(w.pool(kLeaseA).pinned_blocks == 2 * kLeaseBlocks);  // until they are released
  for (const Lease::Entry& entry : taken.entries) w.LetGo(holder, entry.slot);
  CHECK(w.pool(kLeaseA).pinned_blocks == 0);
  w.book.CheckInvariants();
}

TEST_CASE("a session has a limited number of leases, which may change") {
  LeasesWorld w;
  w.Grant(kLeasesOne, {w.Add(kLeaseA)});
  CHECK(w.book.CheckRoom(*w.book.of(kLeasesOne)).ok());
  w.Grant(kLeasesOne, {w.Add(kLeaseA)});
  CHECK(w.book.CheckRoom(*w.book.of(kLeasesOne)).message() ==
        "leases: this session holds 2, the most allowed");
  CHECK(w.book.CheckRoom(*w.book.of(kLeasesTwo)).ok());
  w.book.SetMostLeases(3);
  CHECK(w.book.CheckRoom(*w.book.of(kLeasesOne)).ok());
}

TEST_CASE("a chunk of another tenant is lent and borrowed each time that it is held") {
  LeasesWorld w;
  const ChunkSlot own = w.Add(kLeaseA), lent = w.Add(kLeaseB);
  for (const ChunkSlot slot : {own, own, lent, lent}) CHECK(w.Hold(kLeasesOne, slot));
  LeaseHolder& holder = *w.book.of(kLeasesOne);
  CHECK(w.pool(kLeaseB).lent_blocks == 2 * kLeaseBlocks);
  CHECK(w.pool(kLeaseA).borrowed_blocks == 2 * kLeaseBlocks);
  CHECK(w.pool(kLeaseA).lent_blocks == 0);
  for (const ChunkSlot slot : {own, own, lent}) w.LetGo(holder, slot);
  CHECK(w.pool(kLeaseB).lent_blocks == kLeaseBlocks);
  CHECK(w.pool(kLeaseA).borrowed_blocks == kLeaseBlocks);
  w.book.CheckInvariants();
}

TEST_CASE("a session may hold all that its tenant may, and half of another's") {
  LeasesWorld w;
  CHECK(w.HoldAll(kLeasesOther, kLeaseA) == 4);
  CHECK(w.HoldAll(kLeasesOther, kLeaseB) == 4);
  CHECK(w.HoldAll(kLeasesOne, kLeaseA) == 4);  // A's limit counts lent chunks
}

TEST_CASE("a closed session's leases are found by nobody, and what they hold is let go of") {
  LeasesWorld w;
  const LeaseId lease = w.Grant(kLeasesOther, {w.Add(kLeaseA), w.Add(kLeaseB)});
  const std::shared_ptr<LeaseHolder> ended = w.book.Close(kLeasesOther, /*revoked=*/true);
  CHECK(w.counters.leases_revoked == 1);
  CHECK(w.book.Find(kLeasesOther, lease) == nullptr);
  w.book.CheckInvariants();  // the pools still have it in their accounts
  CHECK(w.pool(kLeaseA).lent_blocks == kLeaseBlocks);
  for (const Lease::Entry& entry : ended->Find(lease)->entries) w.LetGo(*ended, entry.slot);
  CHECK(w.pool(kLeaseA).lent_blocks == 0);
  CHECK(w.pool(kLeaseB).borrowed_blocks == 0);
  w.book.CheckInvariants();
}

}  // namespace kvkeep::store_internal
