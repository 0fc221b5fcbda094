// Puts filled piece by piece, in any order and on several threads: the way of the local path.
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

constexpr size_t kBytes = 3 * kPieceBytes + 12345;

WorldOptions LargeWorld() {
  WorldOptions options = SmallWorld();
  options.g2_blocks = 4096;
  options.g2_segment_blocks = 512;  // two pieces: every chunk lies in several extents
  options.store.max_reserved_bytes = 4096 * kBlockBytes;
  options.device_blocks = {};
  return options;
}

std::vector<std::byte> Pattern() {
  std::vector<std::byte> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7 + i / 4096);
  return bytes;
}

absl::Status Fill(Reservation& reservation, size_t piece, const std::vector<std::byte>& from) {
  return reservation.FillPiece(piece, [&](uint64_t offset, std::span<std::byte> to) {
    std::memcpy(to.data(), from.data() + offset, to.size());
    return absl::OkStatus();
  });
}

}  // namespace

TEST_CASE("pieces filled last to first by two threads make the chunk that one copy would") {
  StoreTester s(LargeWorld());
  const std::vector<std::byte> payload = Pattern();
  Reservation reservation;
  REQUIRE(s.Reserve(1, kBytes, &reservation) == "reserved");
  bool other_ok = false;  // Catch is for one thread
  std::thread other(
      [&] { other_ok = Fill(reservation, 3, payload).ok() && Fill(reservation, 1, payload).ok(); });
  CHECK(Fill(reservation, 2, payload).ok());
  CHECK(Fill(reservation, 0, payload).ok());
  other.join();
  CHECK(other_ok);
  CHECK(reservation.PayloadChecksum() == Xxh3(payload));
  REQUIRE(reservation.Seal({}).value() == SealOutcome::kStored);

  ChunkReader reader = s.Pin(1);
  REQUIRE(reader);
  std::vector<std::byte> read;
  while (read.size() < kBytes) {
    const auto run = reader.Payload(read.size(), kBytes - read.size());
    read.insert(read.end(), run.begin(), run.end());
  }
  CHECK(read == payload);
  const std::vector<uint64_t> checksums = reader.PieceChecksums();
  REQUIRE(checksums.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const auto piece = std::span(payload).subspan(i * kPieceBytes, PieceSize(kBytes, i));
    CHECK(checksums[i] == Xxh3(piece));
  }
}

TEST_CASE("the checksum is of what was placed, whatever the source became meanwhile") {
  StoreTester s(LargeWorld());
  Reservation reservation;
  REQUIRE(s.Reserve(1, kPieceBytes, &reservation) == "reserved");
  uint8_t turn = 0;
  size_t steps = 0;
  CHECK(reservation
            .FillPiece(0,
                       [&](uint64_t, std::span<std::byte> to) {
                         std::memset(to.data(), ++turn, to.size());  // another answer every time
                         ++steps;
                         return absl::OkStatus();
                       })
            .ok());
  CHECK(steps >= 8);
  const uint64_t placed = reservation.PayloadChecksum();
  REQUIRE(reservation.Seal({}).ok());
  CHECK(s.Pin(1).PieceChecksums() == std::vector<uint64_t>{placed});
}

TEST_CASE("a source that fails leaves a reservation that is given back whole") {
  StoreTester s(LargeWorld());
  {
    Reservation reservation;
    REQUIRE(s.Reserve(1, kBytes, &reservation) == "reserved");
    CHECK(Fill(reservation, 0, Pattern()).ok());
    const absl::Status failed = reservation.FillPiece(
        1, [](uint64_t, std::span<std::byte>) { return absl::OutOfRangeError("cut off"); });
    CHECK(absl::IsOutOfRange(failed));
  }
  CHECK(s.Get(1) == "miss");
  CHECK(s.store().snapshot().g2.used_bytes == 0);
  CHECK(s.counters().puts_aborted == 1);
}

TEST_CASE("a revoked session gives back its leases, and both are counted") {
  StoreTester s;
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(s.Lookup({1}).leased_keys == 1);
  REQUIRE(s.Lookup({1}).leased_keys == 1);
  s.store().RevokeSession(s.session);
  CHECK(s.store().snapshot().g2.leased_bytes == 0);
  CHECK(s.counters().sessions_revoked == 1);
  CHECK(s.counters().leases_revoked == 2);
  s.store().RevokeSession(s.session);  // nothing more to take
  CHECK(s.counters().sessions_revoked == 1);
  s.Connect();
  s.store().CloseSession(s.session);
  CHECK(s.counters().sessions_revoked == 1);
}

TEST_CASE("the places of a lease are the leased chunks, and a repeated lookup tells them again") {
  StoreTester s;
  for (const uint64_t i : {0, 1, 3}) REQUIRE(s.Put(i, 5000) == "stored");
  const std::vector<ChunkKey> keys = {MakeKey(0), MakeKey(1), MakeKey(2), MakeKey(3)};
  const std::vector<PartId> parts = {PartId(0)};
  LookupRequest request{.chunks = {s.ns, keys, parts},
                        .lease_mode = LeaseMode::kAllPresent,
                        .client_request_id = 9,
                        .want_places = true};
  const LookupResult first = s.store().Lookup(s.session, request).value();
  REQUIRE(first.places.size() == 3);
  CHECK(first.places[2].chunk == 3);
  CHECK(first.places[2].shape.payload_bytes == 5000);
  CHECK(TotalBlocks(first.places[2].extents) == first.places[2].shape.blocks());
  CHECK(first.places[2].readable);
  const LookupResult again = s.store().Lookup(s.session, request).value();
  REQUIRE(again.places.size() == 3);
  CHECK(again.places[1].extents == first.places[1].extents);
  request.want_places = false;
  CHECK(s.store().Lookup(s.session, request).value().places.empty());
}

}  // namespace kvkeep
