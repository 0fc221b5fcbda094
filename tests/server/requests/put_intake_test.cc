// Chunks of a put by themselves: payload that is written into its place, or thrown away.
#include "server/requests/put_intake.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/sim/world.h"

namespace kvkeep {
namespace {

constexpr uint64_t kBytes = 2 * kPieceBytes + 777;

WorldOptions SomePieces() {
  WorldOptions options;
  options.g2_blocks = 4096;
  options.g2_segment_blocks = 512;
  options.store.max_reserved_bytes = 4096 * kBlockBytes;
  options.device_blocks = {};
  return options;
}

struct Door {
  Door() : world(SomePieces()) {
    world.Start();
    session = *world.store().OpenSession({.client_name = "door"});
    ns = *world.store().OpenNamespace(session, {.model = "door", .tokens_per_chunk = 16});
    intake.emplace(&world.store(), &counters, TenantId());
  }
  v1::PutStreamHeader Stream() const {
    v1::PutStreamHeader header;
    header.set_session_token(std::string(session.view()));
    header.set_namespace_digest(std::string(ns.view()));
    return header;
  }
  void Open() {
    const v1::PutStreamHeader header = Stream();
    REQUIRE(intake->OpenStream(&header).ok());
  }
  v1::PutChunkHeader Chunk(char name, uint64_t bytes = kBytes) const {
    v1::PutChunkHeader header;
    header.set_key(std::string(32, name));
    header.set_payload_bytes(bytes);
    return header;
  }
  // Puts the pattern in place, as from a socket, and checksums the pieces.
  void Fill() {
    Reservation* const to = intake->reservation();
    REQUIRE(to != nullptr);
    for (uint64_t at = 0; at < intake->payload_bytes();) {
      const std::span<std::byte> place = to->PayloadPlace(at, intake->payload_bytes() - at);
      std::memset(place.data(), 7, place.size());
      REQUIRE(intake->Take(place.size()).ok());
      at += place.size();
    }
    for (size_t piece = 0; piece < to->shape().pieces(); ++piece) to->ChecksumPiece(piece);
  }
  v1::PutResult Finish(std::optional<uint64_t> came = std::nullopt) {
    REQUIRE(intake->complete());
    const auto finished = intake->Finish(came);
    REQUIRE(finished.ok());
    CHECK_FALSE(intake->in_progress());
    return finished->Result();
  }
  uint64_t reserved_bytes() { return world.store().snapshot().g2.reserved_bytes; }
  bool Has(char name) {
    ChunkId id{.ns = ns};
    std::memset(id.key.bytes.data(), name, id.key.bytes.size());
    const auto read = world.store().Read(session, id, LeaseId(0), false);
    return read.ok() && read->outcome == ReadOutcome::kHit;
  }

  World world;
  ServerCounters counters;
  SessionToken session;
  NamespaceDigest ns;
  std::optional<PutIntake> intake;
};

uint64_t ChecksumOf(uint64_t bytes) { return Xxh3(std::vector<std::byte>(bytes, std::byte{7})); }

bool Says(const absl::Status& status, const char* what) {
  return absl::IsInvalidArgument(status) && absl::StrContains(status.message(), what);
}

}  // namespace

TEST_CASE("a payload that is written into its place is stored, and the next one has its number") {
  Door door;
  door.Open();
  for (const char name : {'a', 'b'}) {
    REQUIRE(door.intake->OpenChunk(door.Chunk(name)).ok());
    CHECK(door.intake->received_bytes() == 0);
    CHECK_FALSE(door.intake->expects_checksum());
    door.Fill();
    for (size_t piece = 0; piece < 3; ++piece) {
      CHECK(door.intake->CheckPiece(piece, ChecksumOf(PieceSize(kBytes, piece))));
    }
    const v1::PutResult result = door.Finish();
    CHECK(result.status() == v1::PUT_STATUS_STORED);
    CHECK(result.ordinal() == (name == 'a' ? 0 : 1));
    CHECK(door.Has(name));
  }
  CHECK(door.counters.put_bytes == 2 * kBytes);
  CHECK(door.intake->End().ok());
}

TEST_CASE("one piece with another checksum rejects the chunk, and gives its space back") {
  Door door;
  door.Open();
  REQUIRE(door.intake->OpenChunk(door.Chunk('a')).ok());
  door.Fill();
  CHECK(door.intake->CheckPiece(0, ChecksumOf(kPieceBytes)));
  CHECK_FALSE(door.intake->CheckPiece(1, 12));
  CHECK(door.intake->reservation() == nullptr);
  CHECK(door.reserved_bytes() == 0);
  const v1::PutResult result = door.Finish();
  CHECK(result.status() == v1::PUT_STATUS_REJECTED);
  CHECK(result.reason() == v1::REJECT_REASON_WRONG_CHECKSUM);
  CHECK_FALSE(door.Has('a'));
}

TEST_CASE(
    "the checksum of the whole payload is compared with the bytes in place, or those that came") {
  Door door;
  door.Open();
  v1::PutChunkHeader header = door.Chunk('a');
  header.set_checksum(ChecksumOf(kBytes));
  for (const std::optional<uint64_t> came : {std::optional<uint64_t>(1), {}}) {
    REQUIRE(door.intake->OpenChunk(header).ok());
    CHECK(door.intake->expects_checksum());
    door.Fill();
    CHECK(door.Finish(came).status() == (came ? v1::PUT_STATUS_REJECTED : v1::PUT_STATUS_STORED));
  }
}

TEST_CASE("payload without a place is counted, and answered at its end") {
  Door door;
  door.Open();
  REQUIRE(door.intake->OpenChunk(door.Chunk('a')).ok());
  door.Fill();
  CHECK(door.Finish().status() == v1::PUT_STATUS_STORED);
  REQUIRE(door.intake->OpenChunk(door.Chunk('a')).ok());
  CHECK(door.intake->reservation() == nullptr);
  CHECK(door.intake->Take(kBytes - 1).ok());
  CHECK_FALSE(door.intake->complete());
  CHECK(Says(door.intake->Take(2), "1 bytes more came"));
  CHECK(door.intake->Take(1).ok());
  CHECK(door.Finish().status() == v1::PUT_STATUS_PRESENT);
  CHECK(door.counters.put_discarded_bytes == kBytes);

  REQUIRE(door.intake->OpenChunk(door.Chunk('b', 0)).ok());
  CHECK(door.Finish().reason() == v1::REJECT_REASON_WRONG_SIZE);
}

TEST_CASE("frames out of order are errors of the call that name the field") {
  Door door;
  const v1::PutStreamHeader stream = door.Stream();
  CHECK(Says(door.intake->OpenStream(nullptr), "stream: missing"));
  door.Open();
  CHECK(door.intake->OpenStream(nullptr).ok());
  CHECK(Says(door.intake->OpenStream(&stream), "stream: only in the first"));
  CHECK(door.intake->Take(0).ok());
  CHECK(Says(door.intake->Take(1), "payload: no chunk"));
  CHECK(Says(door.intake->AbortChunk(), "abort: no chunk"));
  v1::PutChunkHeader short_key = door.Chunk('a');
  short_key.set_key("k");
  CHECK(Says(door.intake->OpenChunk(short_key), "chunk.key"));
  CHECK_FALSE(door.intake->in_progress());

  REQUIRE(door.intake->OpenChunk(door.Chunk('a')).ok());
  CHECK(Says(door.intake->OpenChunk(door.Chunk('b')), "chunk 0 is in progress"));
  CHECK(door.intake->AbortChunk().ok());
  CHECK(door.reserved_bytes() == 0);
  REQUIRE(door.intake->OpenChunk(door.Chunk('b')).ok());
  CHECK(Says(door.intake->End(), "ended within chunk 1: 0 of"));
  CHECK(door.reserved_bytes() == 0);
}

TEST_CASE("another tenant's call may not use the session, and is counted") {
  Door door;
  const v1::PutStreamHeader stream = door.Stream();
  PutIntake foreign(&door.world.store(), &door.counters, TenantId(1));
  CHECK(absl::IsFailedPrecondition(foreign.OpenStream(&stream)));
  CHECK(door.counters.foreign_session_calls == 1);
}

}  // namespace kvkeep
