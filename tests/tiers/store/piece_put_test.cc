// Puts that are filled piece by piece, in any order and on several threads, as the local path does.
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
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

absl::Status Fill(
    Reservation& reservation, size_t piece, const std::vector<std::byte>& from,
    const std::function<void()>& between = [] {}) {
  const auto read = [&](uint64_t offset, uint64_t bytes, Reservation::GivePayload give) {
    for (uint64_t run = 1; bytes > 0; run = run * 3 + 1) {  // of odd sizes
      const uint64_t now = std::min(run, bytes);
      give(std::span(from).subspan(offset, now));
      between();
      offset += now;
      bytes -= now;
    }
    return absl::OkStatus();
  };
  return reservation.FillPiece(piece, read);
}

// Acts as a client that writes on what it has put. Its race with the reader is intended.
__attribute__((no_sanitize("thread"))) void Scribble(std::vector<std::byte>& bytes, uint8_t turn) {
  for (size_t at = 0; at < bytes.size(); at += 61) {
    static_cast<volatile std::byte&>(bytes[at]) = std::byte{turn};
  }
}

std::vector<std::byte> PayloadOf(const ChunkReader& reader, size_t bytes) {
  std::vector<std::byte> read;
  while (read.size() < bytes) {
    const auto run = reader.Payload(read.size(), bytes - read.size());
    read.insert(read.end(), run.begin(), run.end());
  }
  return read;
}

}  // namespace

TEST_CASE("pieces filled last to first by two threads make the chunk that one copy would") {
  StoreTester s(LargeWorld());
  const std::vector<std::byte> payload = Pattern();
  Reservation reservation;
  REQUIRE(s.Reserve(1, kBytes, &reservation) == "reserved");
  bool other_ok = false;  // Catch allows one thread
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
  CHECK(PayloadOf(reader, kBytes) == payload);
  const std::vector<uint64_t> checksums = reader.PieceChecksums();
  REQUIRE(checksums.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const auto piece = std::span(payload).subspan(i * kPieceBytes, PieceSize(kBytes, i));
    CHECK(checksums[i] == Xxh3(piece));
  }
}

TEST_CASE("a payload written into its place by the caller is the chunk") {
  StoreTester s(LargeWorld());
  const std::vector<std::byte> payload = Pattern();
  Reservation reservation;
  REQUIRE(s.Reserve(1, kBytes, &reservation) == "reserved");
  size_t runs = 0;
  for (size_t piece : {2, 0, 3, 1}) {
    const uint64_t end = piece * kPieceBytes + PieceSize(kBytes, piece);
    for (uint64_t at = piece * kPieceBytes; at < end; ++runs) {
      const std::span<std::byte> place = reservation.PayloadPlace(at, end - at);
      REQUIRE_FALSE(place.empty());
      REQUIRE(place.size() <= end - at);
      std::memcpy(place.data(), payload.data() + at, place.size());
      at += place.size();
    }
    reservation.ChecksumPiece(piece);
    const auto bytes = std::span(payload).subspan(piece * kPieceBytes, PieceSize(kBytes, piece));
    CHECK(reservation.PieceChecksum(piece) == Xxh3(bytes));
  }
  CHECK(runs > 4);  // a piece may lie in several runs of memory
  CHECK(reservation.PayloadPlace(kBytes - 5, 5).size() == 5);
  CHECK(reservation.PayloadPlace(kBytes, 0).empty());
  REQUIRE(reservation.Seal({}).value() == SealOutcome::kStored);
  const ChunkReader reader = s.Pin(1);
  REQUIRE(reader);
  CHECK(PayloadOf(reader, kBytes) == payload);
}

TEST_CASE("the checksum of a piece is told also when it was copied in") {
  StoreTester s(LargeWorld());
  const std::vector<std::byte> payload = Pattern();
  Reservation reservation;
  REQUIRE(s.Reserve(1, kBytes, &reservation) == "reserved");
  REQUIRE(Fill(reservation, 3, payload).ok());
  CHECK(reservation.PieceChecksum(3) == Xxh3(std::span(payload).subspan(3 * kPieceBytes)));
}

TEST_CASE("the checksum is of what was placed, whatever the source became meanwhile") {
  StoreTester s(LargeWorld());
  std::vector<std::byte> source = Pattern();
  source.resize(kPieceBytes);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> turns{0};
  std::thread client([&] {
    while (!stop) Scribble(source, static_cast<uint8_t>(++turns));
  });
  const auto await_turn = [&] {
    for (const uint64_t seen = turns; turns < seen + 2;) std::this_thread::yield();
  };
  for (uint64_t round = 0; round < 8; ++round) {
    Reservation reservation;
    CHECK(s.Reserve(round, kPieceBytes, &reservation) == "reserved");
    // Between runs too: the returned piece is another one then, however threads are scheduled.
    // Within a run it takes the other thread, which has run just before.
    CHECK(Fill(reservation, 0, source, [&] {
            Scribble(source, static_cast<uint8_t>(round));
            await_turn();
          }).ok());
    const uint64_t told = reservation.PayloadChecksum();
    REQUIRE(reservation.Seal({}).ok());
    const ChunkReader reader = s.Pin(round);
    REQUIRE(reader);
    const uint64_t placed = Xxh3(PayloadOf(reader, kPieceBytes));
    CHECK(told == placed);
    CHECK(reader.PieceChecksums() == std::vector<uint64_t>{placed});
  }
  stop = true;
  client.join();
}

TEST_CASE("a source that fails leaves a reservation that is given back whole") {
  StoreTester s(LargeWorld());
  {
    Reservation reservation;
    REQUIRE(s.Reserve(1, kBytes, &reservation) == "reserved");
    CHECK(Fill(reservation, 0, Pattern()).ok());
    const std::vector<std::byte> half(kPieceBytes / 2);
    const absl::Status failed =
        reservation.FillPiece(1, [&](uint64_t, uint64_t, Reservation::GivePayload give) {
          give(half);
          return absl::OutOfRangeError("cut off");
        });
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
