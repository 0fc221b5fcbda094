// Puts: sizes, refusals, races, sessions that end.
#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {

using Catch::Matchers::Contains;

TEST_CASE("what is put comes back whole, whatever its size") {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 2 * 40 * 256;  // room for 33 MiB twice
  options.g2_segment_blocks = 4096;  // 16 MiB: the largest lies in several extents
  options.device_blocks = {2 * 40 * 256};
  options.store.dirty_budget_bytes = 0;
  options.store.max_reserved_bytes = 34 * kMiB;
  options.store.max_leased_bytes = 0;
  StoreTester s(options);
  const std::vector<size_t> sizes = {1, 4096, 4097, kMiB + 1, 33 * kMiB};
  for (uint64_t i = 0; i < sizes.size(); ++i) {
    CHECK(s.Put(i, sizes[i], {.durable = true, .tail_bytes = i % 2 == 0 ? 0u : 1000u}) == "stored");
    CHECK(s.Get(i) == "hit");
  }
  s.Settle();
  // The same from G3, in another process.
  s.KillAndStart();
  for (uint64_t i = 0; i < sizes.size(); ++i) {
    CHECK(s.Where(i) == "3");
    CHECK(s.Get(i) == "hit");
    CHECK(s.Where(i) == "23");
  }
  s.store().CheckInvariants();
}

TEST_CASE("a put of no bytes or too many is refused with the limit in the message") {
  StoreTester s;
  CHECK(s.Put(1, 0) == "wrong size");
  CHECK_THAT(s.message, Contains("payload_bytes"));
  CHECK(s.Put(1, 257 * kMiB) == "wrong size");
  CHECK_THAT(s.message, Contains("268435456"));
  CHECK(s.Put(1, 4096, {.tail_bytes = 17 * 1024}) == "wrong size");
  CHECK_THAT(s.message, Contains("16384"));
  CHECK(s.counters().puts_rejected == 3);
  CHECK(s.store().snapshot().g2.used_bytes == 0);
}

TEST_CASE("a put of another size than its namespace declares is refused with both sizes") {
  StoreTester s(SmallWorld(), 8192);
  CHECK(s.Put(1, 4096) == "wrong size");
  CHECK_THAT(s.message, Contains("4096") && Contains("8192"));
  CHECK(s.Put(1, 8192) == "stored");
}

TEST_CASE("a put into a part that the namespace does not have is refused") {
  StoreTester s;
  const PutRequest request{
      .ns = s.ns, .key = MakeKey(1), .part = PartId(4), .shape = {.payload_bytes = 1}};
  const auto reserved = s.store().Reserve(s.session, request);
  CHECK(reserved.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(reserved.status().message()), Contains("part"));
}

TEST_CASE("a put of what is there is answered PRESENT, in G2 as in G3") {
  StoreTester s;
  CHECK(s.Put(1) == "stored");
  CHECK(s.Put(1) == "present");
  s.Settle();
  s.FloodG2();
  REQUIRE(s.Where(1) == "3");
  CHECK(s.Put(1) == "present");
  CHECK(s.counters().puts_present == 2);
}

TEST_CASE("nothing is visible before the seal") {
  StoreTester s;
  Reservation reservation;
  REQUIRE(s.Reserve(1, 4096, &reservation) == "reserved");
  CHECK(s.Where(1).empty());
  CHECK(s.Get(1) == "miss");
  CHECK(s.Put(1, 4096) ==
        "stored");  // an unsealed put is not PRESENT, a stalled writer blocks no other
}

TEST_CASE("of two writers of one key the first to seal wins, the other is told PRESENT") {
  StoreTester s;
  Reservation first, second;
  REQUIRE(s.Reserve(1, 4096, &first) == "reserved");
  REQUIRE(s.Reserve(1, 4096, &second) == "reserved");
  CHECK(s.Seal(1, std::move(second)) == "stored");
  CHECK(s.Seal(1, std::move(first)) == "present");
  CHECK(s.Get(1) == "hit");
  CHECK(s.store().snapshot().g2.reserved_bytes == 0);
  CHECK(s.store().snapshot().g2.used_bytes == 2 * kBlockBytes);
}

TEST_CASE("an aborted put gives its space back at once") {
  StoreTester s;
  Reservation reservation;
  REQUIRE(s.Reserve(1, 10 * 4096, &reservation) == "reserved");
  CHECK(s.store().snapshot().g2.reserved_bytes == 11 * kBlockBytes);
  reservation.Abort();
  CHECK_FALSE(reservation);
  CHECK(s.store().snapshot().g2.used_bytes == 0);
  CHECK(s.counters().puts_aborted == 1);
  { REQUIRE(s.Reserve(1, 4096, &reservation) == "reserved"); }
  reservation = Reservation();  // dropping it is an abort, too
  CHECK(s.counters().puts_aborted == 2);
  CHECK(s.store().snapshot().g2.used_bytes == 0);
}

TEST_CASE("a put whose session was closed is not published and gives its space back") {
  StoreTester s;
  Reservation reservation;
  REQUIRE(s.Reserve(1, 4096, &reservation) == "reserved");
  s.store().CloseSession(s.session);
  CHECK(s.Seal(1, std::move(reservation)) == "FAILED_PRECONDITION");
  CHECK(s.store().snapshot().g2.used_bytes == 0);
  s.Connect();
  CHECK(s.Get(1) == "miss");
}

TEST_CASE("puts in progress together stay below their limit, which the message names") {
  WorldOptions options = SmallWorld();
  options.store.max_reserved_bytes = 10 * kBlockBytes;
  StoreTester s(options);
  Reservation first, second;
  REQUIRE(s.Reserve(1, 5 * 4096, &first) == "reserved");
  CHECK(s.Reserve(2, 5 * 4096, &second) == "limit");
  CHECK_THAT(s.message, Contains("40960"));
  first.Abort();
  CHECK(s.Reserve(2, 5 * 4096, &second) == "reserved");
}

TEST_CASE("when all of G2 is leased a put is refused at once, and a promotion is busy") {
  StoreTester s;
  REQUIRE(s.Put(100) == "stored");
  s.Settle();
  s.FloodG2();
  REQUIRE(s.Where(100) == "3");
  std::vector<ChunkReader> readers;
  for (uint64_t i = 0; i < 32; ++i) {
    REQUIRE(s.Put(i, 4096, {.no_g3 = true}) == "stored");
    readers.push_back(s.Pin(i));
    REQUIRE(readers.back());
  }
  CHECK(s.Put(200) == "no space");
  CHECK_THAT(s.message, Contains("8192") && Contains("262144"));
  CHECK(s.Get(100) == "busy");
  CHECK(s.counters().read_busy == 1);
  readers.pop_back();
  CHECK(s.Get(100) == "hit");
}

TEST_CASE("a full table lets the least valuable chunks go") {
  WorldOptions options = SmallWorld();
  options.store.max_chunks = 8;
  StoreTester s(options);
  for (uint64_t i = 0; i < 30; ++i) {
    CHECK(s.Put(i) == "stored");
    s.RunAll();
    s.store().CheckInvariants();
  }
  CHECK(s.Where(0).empty());
  CHECK(s.Get(29) == "hit");
  // Nothing can go: each one is held.
  std::vector<ChunkReader> readers;
  for (uint64_t i = 0; i < 30; ++i) {
    if (ChunkReader reader = s.Pin(i)) readers.push_back(std::move(reader));
  }
  REQUIRE(readers.size() <= 8);
  for (uint64_t i = 50; readers.size() < 8; ++i) {
    REQUIRE(s.Put(i) == "stored");
    readers.push_back(s.Pin(i));
  }
  s.RunAll();
  CHECK(s.Put(99) == "RESOURCE_EXHAUSTED");
  CHECK(s.store().snapshot().g2.reserved_bytes == 0);
}

TEST_CASE("a draining store refuses puts and sessions and still reads") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  Reservation under_way;
  REQUIRE(s.Reserve(2, 4096, &under_way) == "reserved");
  s.store().BeginDrain();
  CHECK(s.Put(3) == "draining");
  CHECK(s.store().OpenSession({}).status().code() == absl::StatusCode::kUnavailable);
  CHECK(s.Get(1) == "hit");
  CHECK(s.Seal(2, std::move(under_way)) == "stored");
  s.Settle();
  CHECK(s.store().snapshot().dirty_chunks == 0);
  std::string synced = "waiting";
  s.store().SyncAll([&](absl::Status status) { synced = status.ok() ? "ok" : "failed"; });
  s.RunAll();
  CHECK(synced == "ok");
  s.PowerCutAndStart();
  s.RunAll();
  CHECK(s.Get(1) == "hit");
  CHECK(s.Get(2) == "hit");
}

TEST_CASE("calls of a session that is not open are refused") {
  StoreTester s;
  s.store().CloseSession(s.session);
  s.store().CloseSession(s.session);  // no-op
  CHECK(s.Put(1) == "FAILED_PRECONDITION");
  CHECK(s.Get(1) == "FAILED_PRECONDITION");
  CHECK(s.Release(LeaseId(1)).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("sessions over the limit are refused until one is closed") {
  WorldOptions options = SmallWorld();
  options.store.max_sessions = 2;
  StoreTester s(options);
  const SessionToken second = s.store().OpenSession({}).value();
  const auto third = s.store().OpenSession({});
  CHECK(third.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(third.status().message()), Contains("sessions"));
  s.store().CloseSession(second);
  CHECK(s.store().OpenSession({}).ok());
}

}  // namespace kvkeep
