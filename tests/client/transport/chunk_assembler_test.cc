#include "client/transport/chunk_assembler.h"

#include <catch2/catch.hpp>

#include "kvkeep/v1/kvkeep.pb.h"
#include "tiers/base/checksum.h"
#include "tiers/base/units.h"

namespace kvkeep::client {
namespace {

// One get of one chunk into `destination`, fed frame by frame.
class Fixture {
 public:
  explicit Fixture(size_t chunk_bytes, GetOptions options = {}) : payload_(chunk_bytes) {
    for (size_t i = 0; i < chunk_bytes; ++i) payload_[i] = static_cast<std::byte>(i * 7 + i / 256);
    destination.resize(chunk_bytes);
    span_ = destination;
    options.destinations = absl::MakeSpan(&span_, 1);
    assembler.emplace(std::move(options), 1, 1);
  }

  wire::GetFrameView Frame(size_t begin, size_t end) const {
    wire::GetFrameView frame;
    frame.status = v1::CHUNK_STATUS_HIT;
    frame.offset = begin;
    frame.payload_bytes = payload_.size();
    frame.last = end == payload_.size();
    frame.payload_size = end - begin;
    // Two runs, so that a frame never lies in one piece of memory.
    const auto bytes = std::span<const std::byte>(payload_).subspan(begin, end - begin);
    frame.payload = {bytes.subspan(0, bytes.size() / 3), bytes.subspan(bytes.size() / 3)};
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      frame.piece_checksums.push_back(
          Xxh3(bytes.subspan(at, std::min<size_t>(kPieceBytes, bytes.size() - at))));
    }
    return frame;
  }
  GetOutcome Outcome() { return assembler->TakeOutcomes().at(0); }
  bool SameBytes() const { return destination == payload_; }

  std::vector<std::byte> destination;
  std::optional<ChunkAssembler> assembler;

 private:
  std::vector<std::byte> payload_;
  std::span<std::byte> span_;
};

}  // namespace

TEST_CASE("a chunk of several frames is put together and verified") {
  Fixture f(2 * kMiB + 5);
  REQUIRE(f.assembler->Accept(f.Frame(0, 1 * kMiB)).ok());
  REQUIRE(f.assembler->Accept(f.Frame(1 * kMiB, 2 * kMiB + 5)).ok());
  const GetOutcome outcome = f.Outcome();
  CHECK(outcome.status == GetStatus::kHit);
  CHECK(outcome.bytes == 2 * kMiB + 5);
  CHECK(f.SameBytes());
}

TEST_CASE("a chunk whose bytes do not match a checksum is corrupt, whichever piece it is") {
  for (size_t piece : {0, 1, 2}) {
    Fixture f(3 * kMiB);
    wire::GetFrameView frame = f.Frame(0, 3 * kMiB);
    frame.piece_checksums[piece] ^= 1;
    REQUIRE(f.assembler->Accept(frame).ok());
    CHECK(f.assembler->corrupt_chunks() == 1);
    const GetOutcome outcome = f.Outcome();
    CHECK(outcome.status == GetStatus::kCorrupt);
    CHECK(outcome.bytes == 0);
  }
}

TEST_CASE("missing checksums make a chunk corrupt unless verification is off") {
  for (bool verify : {true, false}) {
    Fixture f(100, {.verify = verify});
    wire::GetFrameView frame = f.Frame(0, 100);
    frame.piece_checksums.clear();
    REQUIRE(f.assembler->Accept(frame).ok());
    CHECK(f.Outcome().status == (verify ? GetStatus::kCorrupt : GetStatus::kHit));
  }
}

TEST_CASE("a chunk that turns corrupt midway is corrupt") {
  Fixture f(2 * kMiB);
  REQUIRE(f.assembler->Accept(f.Frame(0, 1 * kMiB)).ok());
  wire::GetFrameView bad;
  bad.status = v1::CHUNK_STATUS_CORRUPT;
  REQUIRE(f.assembler->Accept(bad).ok());
  CHECK(f.Outcome().status == GetStatus::kCorrupt);
}

TEST_CASE("a chunk that never ends is unfinished") {
  Fixture f(2 * kMiB);
  REQUIRE(f.assembler->Accept(f.Frame(0, 1 * kMiB)).ok());
  CHECK(f.assembler->finished_chunks() == 0);
  CHECK(f.Outcome().status == GetStatus::kUnfinished);
}

TEST_CASE("a frame that breaks the protocol ends the get and writes nothing out of bounds") {
  Fixture f(3 * kMiB);
  SECTION("a hole") { CHECK_FALSE(f.assembler->Accept(f.Frame(1 * kMiB, 3 * kMiB)).ok()); }
  SECTION("the same frame twice") {
    REQUIRE(f.assembler->Accept(f.Frame(0, 1 * kMiB)).ok());
    CHECK_FALSE(f.assembler->Accept(f.Frame(0, 1 * kMiB)).ok());
  }
  SECTION("more bytes than the chunk has") {
    wire::GetFrameView frame = f.Frame(0, 3 * kMiB);
    frame.payload_bytes = 2 * kMiB;
    CHECK_FALSE(f.assembler->Accept(frame).ok());
  }
  SECTION("a chunk that grows") {
    REQUIRE(f.assembler->Accept(f.Frame(0, 1 * kMiB)).ok());
    wire::GetFrameView frame = f.Frame(1 * kMiB, 2 * kMiB);
    frame.payload_bytes += 1;
    CHECK_FALSE(f.assembler->Accept(frame).ok());
  }
  SECTION("the end before the last byte") {
    wire::GetFrameView frame = f.Frame(0, 1 * kMiB);
    frame.last = true;
    CHECK_FALSE(f.assembler->Accept(frame).ok());
  }
  SECTION("a frame in the middle of a piece") {
    REQUIRE(f.assembler->Accept(f.Frame(0, kMiB / 2)).ok());
    CHECK_FALSE(f.assembler->Accept(f.Frame(kMiB / 2, 1 * kMiB)).ok());
  }
  SECTION("a frame after the last") {
    REQUIRE(f.assembler->Accept(f.Frame(0, 3 * kMiB)).ok());
    CHECK_FALSE(f.assembler->Accept(f.Frame(0, 3 * kMiB)).ok());
  }
  SECTION("a chunk that nobody asked for") {
    wire::GetFrameView frame = f.Frame(0, 3 * kMiB);
    frame.key_index = 1;
    CHECK_FALSE(f.assembler->Accept(frame).ok());
    frame.key_index = 0;
    frame.part_index = 1;
    CHECK_FALSE(f.assembler->Accept(frame).ok());
  }
  SECTION("an impossible size") {
    wire::GetFrameView frame = f.Frame(0, 3 * kMiB);
    frame.payload_bytes = 257 * kMiB;
    CHECK_FALSE(f.assembler->Accept(frame).ok());
  }
  for (const GetOutcome& outcome : f.assembler->TakeOutcomes())
    CHECK(outcome.status != GetStatus::kMiss);
}

TEST_CASE("a destination that is too small gets nothing and is told the size") {
  std::vector<std::byte> small(99);
  std::span<std::byte> span(small);
  ChunkAssembler assembler({.destinations = absl::MakeSpan(&span, 1)}, 1, 1);
  Fixture source(100);
  REQUIRE(assembler.Accept(source.Frame(0, 100)).ok());
  const GetOutcome outcome = assembler.TakeOutcomes().at(0);
  CHECK(outcome.status == GetStatus::kTooSmall);
  CHECK(outcome.payload_bytes == 100);
  CHECK(small == std::vector<std::byte>(99));
}

TEST_CASE("a range of pieces is delivered from its own beginning") {
  Fixture f(3 * kMiB + 1, {.first_piece = 1, .pieces = 1});
  wire::GetFrameView frame = f.Frame(1 * kMiB, 2 * kMiB);
  frame.last = true;
  REQUIRE(f.assembler->Accept(frame).ok());
  const GetOutcome outcome = f.Outcome();
  CHECK(outcome.status == GetStatus::kHit);
  CHECK(outcome.bytes == 1 * kMiB);
  CHECK(outcome.payload_bytes == 3 * kMiB + 1);
}

}  // namespace kvkeep::client
