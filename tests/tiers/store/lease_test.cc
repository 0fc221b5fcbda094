// Lookups and leases: the chunks that a lease covers, keeps, and gives back.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {

using Catch::Matchers::Contains;

namespace {

// Chunks [0, count) in G3 only.
void PutIntoG3(StoreTester& s, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    REQUIRE(s.Put(i) == "stored");
    s.RunAll();
  }
  s.Settle();
  s.FloodG2();
  for (uint64_t i = 0; i < count; ++i) REQUIRE(s.Where(i) == "3");
}

}  // namespace

TEST_CASE("a leading-run lease ends at the first hole, all-present skips it") {
  StoreTester s;
  for (const uint64_t i : {0, 1, 3}) REQUIRE(s.Put(i) == "stored");
  const LookupResult run = s.Lookup({0, 1, 2, 3});
  CHECK(run.leading_keys == 2);
  CHECK(run.leased_keys == 2);
  CHECK(run.leased_bytes == 4 * kBlockBytes);
  CHECK(run.g2_parts == std::vector<uint64_t>{1, 1, 0, 1});
  const LookupResult all = s.Lookup({0, 1, 2, 3}, LeaseMode::kAllPresent);
  CHECK(all.leading_keys == 2);
  CHECK(all.leased_keys == 4);
  CHECK(all.leased_bytes == 6 * kBlockBytes);
  s.FloodG2();
  for (const uint64_t i : {0, 1, 3}) CHECK(s.Where(i).substr(0, 1) == "2");
  CHECK(s.Release(run.lease).ok());
  CHECK(s.Release(all.lease).ok());
  CHECK(s.store().snapshot().g2.leased_bytes == 0);
}

TEST_CASE("a lookup without a lease holds nothing") {
  StoreTester s;
  REQUIRE(s.Put(0, 4096, {.no_g3 = true}) == "stored");
  CHECK(s.Lookup({0}, LeaseMode::kNone).lease == LeaseId(0));
  CHECK(s.store().snapshot().g2.leased_bytes == 0);
  s.FloodG2();
  CHECK(s.Get(0) == "miss");
}

TEST_CASE("a key counts in a run when all parts asked for are there") {
  StoreTester s;
  const auto put_part = [&](uint64_t name, uint32_t part) {
    auto reserved = s.store().Reserve(
        s.session,
        {.ns = s.ns, .key = MakeKey(name), .part = PartId(part), .shape = {.payload_bytes = 1}});
    reserved->reservation.Append(MakePayload(name, part, 1));
    REQUIRE(reserved->reservation.Seal({}).ok());
  };
  put_part(0, 0);
  put_part(0, 3);
  put_part(1, 3);
  const std::vector<ChunkKey> keys = {MakeKey(0), MakeKey(1)};
  const std::vector<PartId> parts = {PartId(3), PartId(0)};
  const LookupResult found =
      s.store()
          .Lookup(s.session, {.chunks = {s.ns, keys, parts}, .lease_mode = LeaseMode::kLeadingRun})
          .value();
  CHECK(found.g2_parts == std::vector<uint64_t>{0b11, 0b01});
  CHECK(found.leased_keys == 1);
  CHECK(found.leased_bytes == 4 * kBlockBytes);
}

TEST_CASE("max_leased_bytes shortens a lease by whole keys from its end") {
  WorldOptions options = SmallWorld();
  options.store.max_leased_bytes = 7 * kBlockBytes;  // three chunks of two blocks
  StoreTester s(options);
  for (uint64_t i = 0; i < 6; ++i) REQUIRE(s.Put(i) == "stored");
  const LookupResult run = s.Lookup({0, 1, 2, 3, 4, 5});
  CHECK(run.leading_keys == 6);
  CHECK(run.leased_keys == 3);
  CHECK(s.counters().leases_shortened == 1);
  // An already leased chunk costs nothing more.
  CHECK(s.Lookup({0, 1, 2}).leased_keys == 3);
  CHECK(s.Lookup({3, 4}).lease == LeaseId(0));
  CHECK(s.store().snapshot().g2.leased_bytes == 6 * kBlockBytes);
}

TEST_CASE("a leased lookup promises G2 space for its G3 hits, whatever others put meanwhile") {
  StoreTester s;
  PutIntoG3(s, 20);
  const LookupResult run = s.Lookup({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(run.leased_keys == 10);
  CHECK(s.store().snapshot().g2.leased_bytes == 20 * kBlockBytes);
  s.FloodG2();
  s.FloodG2();
  for (uint64_t i = 0; i < 10; ++i) CHECK(s.Get(i, run.lease) == "hit");
  CHECK(s.counters().promotions == 10);
}

TEST_CASE("a run is shortened when G2 cannot hold all of it, and keeps its promise for the rest") {
  StoreTester s;
  PutIntoG3(s, 40);
  std::vector<ChunkReader> others;  // hold half of G2
  for (uint64_t i = 100; i < 116; ++i) {
    REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
    others.push_back(s.Pin(i));
  }
  std::vector<uint64_t> names;
  for (uint64_t i = 0; i < 40; ++i) names.push_back(i);
  const LookupResult run = s.Lookup(names);
  CHECK(run.leading_keys == 40);
  CHECK(run.leased_keys == 16);
  CHECK(s.Put(200) == "no space");
  for (uint64_t i = 0; i < 16; ++i) CHECK(s.Get(i, run.lease) == "hit");
  CHECK(s.Get(16) == "busy");
}

TEST_CASE("making room for a lease never pushes out what the same lookup promised") {
  StoreTester s;
  PutIntoG3(s, 30);
  // The tail of the run is in G2, where room must be made for its head.
  for (uint64_t i = 20; i < 30; ++i) REQUIRE(s.Get(i) == "hit");
  std::vector<uint64_t> names;
  for (uint64_t i = 0; i < 30; ++i) names.push_back(i);
  const LookupResult run = s.Lookup(names);
  CHECK(run.leased_keys == 30);
  for (uint64_t i = 0; i < 30; ++i) CHECK(s.Get(i, run.lease) == "hit");
}

TEST_CASE("keep_keys shrinks a lease to its head") {
  StoreTester s;
  for (uint64_t i = 0; i < 4; ++i) REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
  const LookupResult run = s.Lookup({0, 1, 2, 3});
  CHECK(s.Release(run.lease, 9).ok());
  CHECK(s.store().snapshot().g2.leased_bytes == 8 * kBlockBytes);
  CHECK(s.Release(run.lease, 2).ok());
  CHECK(s.store().snapshot().g2.leased_bytes == 4 * kBlockBytes);
  CHECK(s.store().snapshot().sessions[0].leased_bytes == 4 * kBlockBytes);
  s.FloodG2();
  CHECK(s.Get(1, run.lease) == "hit");
  CHECK(s.Where(2).empty());
  CHECK(s.Release(run.lease).ok());
  CHECK(s.Release(run.lease).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a repeated client_request_id gets the same lease, once") {
  StoreTester s;
  for (uint64_t i = 0; i < 3; ++i) REQUIRE(s.Put(i) == "stored");
  const LookupResult first = s.Lookup({0, 1, 2}, LeaseMode::kLeadingRun, 77);
  const LookupResult again = s.Lookup({0, 1, 2}, LeaseMode::kLeadingRun, 77);
  CHECK(again.lease == first.lease);
  CHECK(again.leased_keys == 3);
  CHECK(s.counters().leases_granted == 1);
  CHECK(s.Release(first.lease).ok());
  CHECK(s.store().snapshot().g2.leased_bytes == 0);
  CHECK(s.Lookup({0, 1, 2}, LeaseMode::kLeadingRun, 77).lease != first.lease);
}

TEST_CASE("a repeated client_request_id is answered also by a session at its limit of leases") {
  WorldOptions options = SmallWorld();
  options.store.max_leases_per_session = 1;
  StoreTester s(options);
  REQUIRE(s.Put(0) == "stored");
  const LookupResult first = s.Lookup({0}, LeaseMode::kLeadingRun, 77);
  const std::vector<ChunkKey> keys = {MakeKey(0)};
  const std::vector<PartId> parts = {PartId(0)};
  LookupRequest request{
      .chunks = {s.ns, keys, parts}, .lease_mode = LeaseMode::kLeadingRun, .client_request_id = 77};
  const auto again = s.store().Lookup(s.session, request);
  REQUIRE(again.ok());
  CHECK(again->lease == first.lease);
  request.client_request_id = 78;
  const auto another = s.store().Lookup(s.session, request);
  CHECK(another.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(another.status().message()), Contains("leases"));
}

TEST_CASE("a closed session gives back all its leases") {
  StoreTester s;
  for (uint64_t i = 0; i < 8; ++i) REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
  for (uint64_t i = 0; i < 8; ++i) s.Lookup({i, (i + 1) % 8});
  CHECK(s.store().snapshot().g2.leased_bytes == 16 * kBlockBytes);
  s.store().CloseSession(s.session);
  CHECK(s.store().snapshot().g2.leased_bytes == 0);
  s.Connect();
  s.FloodG2();
  CHECK(s.Where(0).empty());
}

TEST_CASE("a deleted chunk stays readable under its lease and is gone for everyone else") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  const LookupResult run = s.Lookup({1});
  CHECK(s.Delete({1, 2}) == 1);
  CHECK(s.Where(1).empty());
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(1, run.lease) == "hit");
  s.FloodG2();
  CHECK(s.Get(1, run.lease) == "hit");
  s.Settle();
  CHECK(s.store().snapshot().g3.chunks == 0);
  CHECK(s.Release(run.lease).ok());
  CHECK(s.Get(1) == "miss");
  s.KillAndStart();
  CHECK(s.Where(1).empty());
}

TEST_CASE("a lease keeps its bytes readable when the key is deleted, put anew and pushed out") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  const LookupResult run = s.Lookup({1});
  REQUIRE(s.Delete({1}) == 1);
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  s.FloodG2();
  REQUIRE(s.Where(1) == "3");
  std::vector<ChunkReader> all_else;  // nothing can be promoted now
  for (uint64_t i = 100; s.Put(i, 4096, {.no_g3 = true}) == "stored"; ++i) {
    all_else.push_back(s.Pin(i));
  }
  CHECK(s.Get(1) == "busy");
  CHECK(s.Get(1, run.lease) == "old");
}

TEST_CASE("a read under an unknown lease is refused") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  CHECK(s.Get(1, LeaseId(99)) == "FAILED_PRECONDITION");
}

TEST_CASE("calls over their limits name them") {
  WorldOptions options = SmallWorld();
  options.store.max_keys_per_call = 4;
  StoreTester s(options);
  const std::vector<ChunkKey> keys(3, MakeKey(1));
  const auto message = [&](std::vector<PartId> parts, std::span<const ChunkKey> of) {
    const auto result = s.store().Lookup(s.session, {.chunks = {s.ns, of, parts}});
    CHECK(result.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  CHECK_THAT(message({PartId(0), PartId(1)}, keys), Contains("keys x parts is 6"));
  CHECK_THAT(message({PartId(0), PartId(0)}, std::span(keys).first(1)), Contains("twice"));
  CHECK_THAT(message({PartId(7)}, keys), Contains("parts"));
  CHECK_THAT(message({}, keys), Contains("empty"));
}

TEST_CASE("of a request's chunks the tail goes first") {
  for (uint64_t pushed_out = 0; pushed_out <= 4; ++pushed_out) {
    StoreTester s;
    for (uint64_t i = 0; i < 4; ++i) {
      PutHow how{.no_g3 = true};
      if (i > 0) how.parent = i - 1;
      REQUIRE(s.Put(i, 4096, how) == "stored");
    }
    s.Lookup({0, 1, 2, 3}, LeaseMode::kNone);
    // G2 holds 32 chunks of this size: 28 more fit, each one above that evicts one.
    for (uint64_t i = 0; i < 28 + pushed_out; ++i) {
      REQUIRE(s.Put(100 + i, 4096, {.no_g3 = true}) == "stored");
    }
    for (uint64_t i = 0; i < 4; ++i) CHECK(s.Where(i) == (i < 4 - pushed_out ? "2" : ""));
  }
}

}  // namespace kvkeep
