// Tenants that let others read their chunks: what a reader may do, what it may not, and what its
// reading can cost the owner.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"
#include "tiers/store/foreign_reads.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kSharedChunk = 4096;  // with its header page two blocks

// "", "blue" and "green" with a segment of 64 blocks each; blue lets the default tenant read.
WorldOptions BlueIsRead() {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 192;
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 192 * kBlockBytes;
  options.store.max_leased_bytes = 96 * kBlockBytes;  // 32 blocks each
  options.store.tenants = {
      {.name = "", .g2_segments = 1},
      {.name = "blue", .g2_segments = 1, .readers = {TenantId(0)}},
      {.name = "green", .g2_segments = 1},
  };
  return options;
}

// A session of a tenant, in a namespace of its own or, by name, another's.
class SharingClient {
 public:
  SharingClient(StoreTester* tester, uint32_t tenant, const std::string& of = "")
      : tester_(*tester) {
    session_ = store().OpenSession({.client_name = "t", .tenant = TenantId(tenant)}).value();
    const auto opened = Open(of);
    if (opened.ok()) ns = *opened;
    refused = opened.status();
  }
  absl::StatusOr<NamespaceDigest> Open(const std::string& of) {
    NamespaceSpec spec{.model = "test", .tokens_per_chunk = 16};
    spec.tenant = of;
    return store().OpenNamespace(session_, spec);
  }

  absl::Status Put(uint64_t name) {
    absl::StatusOr<ReserveResult> result = store().Reserve(
        session_, {.ns = ns, .key = MakeKey(name), .shape = {.payload_bytes = kSharedChunk}});
    if (!result.ok()) return result.status();
    REQUIRE(result->outcome == ReserveResult::Outcome::kReserved);
    result->reservation.Append(MakePayload(name, 1, kSharedChunk));
    return result->reservation.Seal({}).status();
  }
  void PutAll(uint64_t first, uint64_t end) {
    for (uint64_t name = first; name < end; ++name) REQUIRE(Put(name).ok());
  }
  absl::StatusOr<LookupResult> Lookup(uint64_t first, uint64_t count,
                                      LeaseMode mode = LeaseMode::kNone) {
    Name(first, count);
    return store().Lookup(session_,
                          {.chunks = {ns, keys_, parts_}, .lease_mode = mode, .want_places = true});
  }
  uint32_t Leads(uint64_t first, uint64_t count) {
    return Lookup(first, count).value().leading_keys;
  }
  LookupResult Lease(uint64_t first, uint64_t count) {
    return Lookup(first, count, LeaseMode::kLeadingRun).value();
  }
  absl::StatusOr<ReadResult> Read(uint64_t name, LeaseId lease = LeaseId(0)) {
    return store().Read(session_, {ns, MakeKey(name), PartId(0)}, lease, false);
  }
  absl::StatusOr<uint64_t> Delete(uint64_t name) {
    Name(name, 1);
    return store().Delete(session_, {ns, keys_, parts_});
  }
  absl::StatusOr<uint64_t> Touch(uint64_t name) {
    Name(name, 1);
    return store().Touch(session_, {ns, keys_, parts_});
  }
  absl::Status Release(LeaseId lease) { return store().Release(session_, lease, 0); }
  void Close() { store().CloseSession(session_); }

  NamespaceDigest ns;
  absl::Status refused;

 private:
  void Name(uint64_t first, uint64_t count) {
    keys_.clear();
    for (uint64_t i = 0; i < count; ++i) keys_.push_back(MakeKey(first + i));
  }
  Store& store() { return tester_.store(); }

  StoreTester& tester_;
  SessionToken session_;
  std::vector<ChunkKey> keys_;
  const std::vector<PartId> parts_ = {PartId(0)};
};

}  // namespace

TEST_CASE("a reader finds, leases and reads the owner's chunks, under the owner's digest") {
  StoreTester s(BlueIsRead());
  SharingClient blue(&s, 1), reader(&s, 0, "blue"), own(&s, 0);
  REQUIRE(reader.refused.ok());
  CHECK(reader.ns == blue.ns);
  CHECK(own.ns != blue.ns);
  blue.PutAll(1, 3);
  CHECK(reader.Leads(1, 3) == 2);
  CHECK(own.Leads(1, 1) == 0);
  CHECK(reader.Touch(1).value() == 1);
  const auto read = reader.Read(1);
  REQUIRE(read.ok());
  REQUIRE(read->outcome == ReadOutcome::kHit);
  const auto payload = MakePayload(1, 1, kSharedChunk);
  CHECK(std::equal(payload.begin(), payload.end(), read->reader.Payload(0, kSharedChunk).begin()));
  const LookupResult leased = reader.Lease(1, 2);
  REQUIRE(leased.places.size() == 2);
  CHECK(leased.places[0].extents[0].first.value() >= 64);  // in blue's segment
  CHECK(leased.places[0].extents[0].first.value() < 128);
  s.store().CheckInvariants();
}

TEST_CASE("what readers were given is told once, by session and namespace, the owner's own never") {
  StoreTester s(BlueIsRead());
  SharingClient blue(&s, 1), reader(&s, 0, "blue"), second(&s, 0, "blue"), own(&s, 0);
  blue.PutAll(1, 4);
  CHECK(own.Put(9).ok());
  REQUIRE(blue.Read(1)->outcome == ReadOutcome::kHit);
  REQUIRE(own.Read(9)->outcome == ReadOutcome::kHit);
  CHECK(reader.Leads(1, 3) == 3);  // finds, and is given nothing
  CHECK(s.store().TakeForeignReads().empty());
  REQUIRE(reader.Read(1)->outcome == ReadOutcome::kHit);
  REQUIRE(reader.Read(7)->outcome == ReadOutcome::kMiss);
  CHECK(reader.Lease(1, 2).places.size() == 2);
  REQUIRE(second.Read(3)->outcome == ReadOutcome::kHit);
  auto told = s.store().TakeForeignReads();
  REQUIRE(told.size() == 2);
  if (told[0].chunks < told[1].chunks) std::swap(told[0], told[1]);
  CHECK(told[0].chunks == 3);
  CHECK(told[0].bytes == 3 * kSharedChunk);
  CHECK(told[1].chunks == 1);
  for (const ForeignRead& read : told) {
    CHECK(read.ns == blue.ns);
    CHECK(read.owner == TenantId(1));
    REQUIRE(read.reader != nullptr);
    CHECK(read.reader->tenant == TenantId(0));
  }
  CHECK(s.counters().foreign_read_chunks == 4);
  CHECK(s.counters().foreign_read_bytes == 4 * kSharedChunk);
  CHECK(s.store().TakeForeignReads().empty());
}

TEST_CASE("more readers than there is an entry for are told as one") {
  store_internal::ForeignReads reads;
  const NamespaceDigest ns = *NamespaceDigest::FromBytes("ns");
  std::vector<std::shared_ptr<const SessionInfo>> readers;
  for (size_t i = 0; i < store_internal::ForeignReads::kMost + 5; ++i) {
    readers.push_back(std::make_shared<SessionInfo>());
    for (int twice = 0; twice < 2; ++twice) reads.Add(readers.back(), ns, TenantId(1), 1, 10);
  }
  const std::vector<ForeignRead> told = reads.Take();
  REQUIRE(told.size() == store_internal::ForeignReads::kMost + 1);
  CHECK(told.back().reader == nullptr);
  CHECK(told.back().chunks == 10);
  CHECK(told.back().bytes == 100);
  CHECK(reads.Take().empty());
}

TEST_CASE("what a reader would write is refused, with the reason, and changes nothing") {
  StoreTester s(BlueIsRead());
  SharingClient blue(&s, 1), reader(&s, 0, "blue");
  blue.PutAll(1, 2);
  const absl::Status put = reader.Put(5);
  CHECK(absl::IsPermissionDenied(put));
  CHECK(absl::StrContains(std::string(put.message()), "tenant 'blue'"));
  CHECK(absl::IsPermissionDenied(reader.Put(1)));  // not PRESENT either
  CHECK(absl::IsPermissionDenied(reader.Delete(1).status()));
  CHECK(s.counters().denied_calls == 3);
  CHECK(blue.Leads(1, 1) == 1);
  CHECK(blue.Leads(5, 1) == 0);
  // In its own namespaces it writes as before; and a tenant that names itself is no reader.
  SharingClient own(&s, 0), by_name(&s, 1, "blue");
  CHECK(own.Put(5).ok());
  CHECK(by_name.Put(6).ok());
}

TEST_CASE("who was not let in hears the same of a tenant that is there and of one that is not") {
  StoreTester s(BlueIsRead());
  SharingClient blue(&s, 1), green(&s, 2), red(&s, 0);
  const absl::Status there = green.Open("blue").status();
  const absl::Status nowhere = green.Open("grey").status();
  CHECK(absl::IsPermissionDenied(there));
  CHECK(there == absl::PermissionDeniedError(
                     "tenant: there is no 'blue' that lets this session's tenant read"));
  CHECK(nowhere == absl::PermissionDeniedError(
                       "tenant: there is no 'grey' that lets this session's tenant read"));
  // The right is not mutual.
  CHECK(absl::IsPermissionDenied(blue.Open("default").status()));
  CHECK(absl::IsPermissionDenied(red.Open("green").status()));
  CHECK(absl::IsInvalidArgument(red.Open(std::string(33, 'x')).status()));
  CHECK(s.counters().denied_calls == 4);
  // Nor does the digest help.
  green.ns = blue.ns;
  CHECK(absl::IsFailedPrecondition(green.Lookup(1, 1).status()));
  CHECK(absl::IsFailedPrecondition(green.Read(1).status()));
}

TEST_CASE("readers lease half of what the owner may, and what they hold comes back with them") {
  StoreTester s(BlueIsRead());
  SharingClient blue(&s, 1), reader(&s, 0, "blue");
  blue.PutAll(0, 30);
  const LookupResult leased = reader.Lease(0, 20);
  CHECK(leased.leased_keys == 8);  // 16 of 32 blocks
  CHECK(reader.Lease(20, 1).leased_keys == 0);
  CHECK(reader.Read(25)->outcome == ReadOutcome::kBusy);
  CHECK(reader.Read(0, leased.lease)->outcome == ReadOutcome::kHit);
  s.store().CheckInvariants();
  // The owner has the rest, and its own leases do not count against readers' limits.
  const LookupResult own = blue.Lease(10, 20);
  CHECK(own.leased_keys == 8);
  REQUIRE(blue.Release(own.lease).ok());
  reader.Close();
  s.store().CheckInvariants();
  CHECK(blue.Lease(0, 30).leased_keys == 16);
  CHECK(s.store().snapshot().tenants[0].g2.leased_bytes == 0);
}

TEST_CASE("what is leased of others counts as the reader's own, too") {
  StoreTester s(BlueIsRead());
  SharingClient blue(&s, 1), reader(&s, 0, "blue"), own(&s, 0);
  blue.PutAll(0, 8);
  own.PutAll(0, 20);
  const LookupResult mine = own.Lease(0, 13);  // 26 of 32 blocks
  REQUIRE(mine.leased_keys == 13);
  const LookupResult leased = reader.Lease(0, 8);
  CHECK(leased.leased_keys == 3);  // everything that is left: less than its half
  CHECK(own.Lease(13, 1).leased_keys == 0);
  s.store().CheckInvariants();
  REQUIRE(own.Release(mine.lease).ok());
  CHECK(own.Lease(0, 14).leased_keys == 13);  // 26 of 32: 6 are borrowed
  REQUIRE(reader.Release(leased.lease).ok());
  s.store().CheckInvariants();
}

TEST_CASE("a chunk that a reader reads is lent until it lets go") {
  StoreTester s(BlueIsRead());
  SharingClient blue(&s, 1), reader(&s, 0, "blue");
  blue.PutAll(0, 20);
  std::vector<ReadResult> held;
  for (uint64_t name = 0; name < 8; ++name) {
    held.push_back(reader.Read(name).value());
    REQUIRE(held.back().outcome == ReadOutcome::kHit);
  }
  CHECK(reader.Read(8)->outcome == ReadOutcome::kBusy);
  CHECK(blue.Read(8)->outcome == ReadOutcome::kHit);
  held.pop_back();
  CHECK(reader.Read(8)->outcome == ReadOutcome::kHit);
  held.clear();
  s.store().CheckInvariants();
  CHECK(reader.Lease(0, 8).leased_keys == 8);
}

TEST_CASE("a reader brings chunks of G3 into the owner's memory, not its own") {
  StoreTester s(BlueIsRead());
  SharingClient blue(&s, 1);
  for (uint64_t name = 0; name < 100; name += 10) {
    blue.PutAll(name, name + 10);
    s.Settle();
  }
  SharingClient reader(&s, 0, "blue");
  CHECK(reader.Leads(0, 1) == 1);
  const LookupResult leased = reader.Lease(0, 4);
  CHECK(leased.leased_keys == 4);
  s.Settle();
  CHECK(s.store().snapshot().tenants[0].g2.used_bytes == 0);
  CHECK(s.store().snapshot().tenants[1].g2.leased_bytes == 8 * kBlockBytes);
  CHECK(reader.Read(0, leased.lease)->outcome == ReadOutcome::kHit);
  s.store().CheckInvariants();
}

TEST_CASE("a reader's calls are charged to its own tenant") {
  WorldOptions options = BlueIsRead();
  options.store.tenants[0].keys_per_second = 10;
  StoreTester s(options);
  SharingClient blue(&s, 1), reader(&s, 0, "blue");
  blue.PutAll(0, 4);
  CHECK(reader.Leads(0, 20) == 4);
  CHECK(absl::IsResourceExhausted(reader.Lookup(0, 1).status()));
  for (int i = 0; i < 10; ++i) CHECK(blue.Leads(0, 20) == 4);
  CHECK(s.store().snapshot().tenants[0].counters.key_rate_refusals == 1);
  CHECK(s.store().snapshot().tenants[1].counters.key_rate_refusals == 0);
}

}  // namespace kvkeep
