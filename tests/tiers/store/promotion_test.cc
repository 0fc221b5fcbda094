// An image on its way into G2: which pieces may be verified when, which waiters are told, and when
// it has ended.
#include "tiers/store/promotion.h"

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"
#include "tiers/store/lower_tier.h"

namespace kvkeep::store_internal {
namespace {

// Only a name: nothing calls it here.
class SomeTier final : public LowerTier {
 public:
  SomeTier() : LowerTier(0, {}, kMiB) {}
  void Read(ImageRead) override {}
  void Write(ImageWrite) override {}
  absl::Status CheckHeader(const ImageHeader&, const ExpectedHeader&) const override { return {}; }
  void NoteBad(const ChunkId&, const ImageHeader*) override {}
  bool has_records() const override { return true; }
  ImagePlacement PlacementOf(const Chunk&) const override { return {}; }
  bool readable() const override { return true; }
  bool writable() const override { return true; }
  void NoteHeard() override {}
  void NoteIo(bool, const absl::Status&, MonotonicTime) override {}
  uint32_t NoteRuns(const Chunk&) override { return 1; }
};

constexpr ImageShape kThreePieces{.payload_bytes = 2 * kPieceBytes + 100, .tail_bytes = 40};

std::unique_ptr<ImageHeader> Header(const ImageShape& shape) {
  auto header = std::make_unique<ImageHeader>();
  header->identity.shape = shape;
  return header;
}

using Next = Promotion::Next;

struct Rig {
  explicit Rig(const ImageShape& shape = kThreePieces)
      : promotion(&tier, {}, ChunkSlot(7), shape,
                  {Extent{BlockNumber(5), shape.blocks()}}) {
    promotion.BeginReads({});
    REQUIRE(promotion.TakeHeaderPage());
  }
  uint64_t BytesOf(size_t piece) const {
    return piece + 1 < promotion.pieces()
               ? kPieceBytes
               : promotion.bytes() - kHeaderBytes - piece * kPieceBytes;
  }
  Next Read(size_t piece) {
    return promotion.OnPieceRead(piece, BytesOf(piece), absl::OkStatus());
  }
  // Reads and verifies it.
  Next Come(size_t piece) {
    const Next read = Read(piece);
    REQUIRE(read.verify.size() == 1);
    Next next = promotion.OnVerified(read.verify[0], absl::OkStatus());
    for (auto& one : next.told) std::move(one)(absl::OkStatus());
    return next;
  }
  // Returns "waits", or the answer that came at once.
  std::string Await(size_t first, size_t end, PieceWaiters::Callback ready) {
    const std::optional<absl::Status> known =
        promotion.Await({first, end}, Promotion::Patience::kToTheEnd, MonotonicTime(0), ready);
    return known.has_value() ? known->ToString() : "waits";
  }
  std::string Await(size_t first, size_t end) {
    return Await(first, end, [](const absl::Status&) {});
  }

  SomeTier tier;
  Promotion promotion;
};

bool IsNothing(const Next& next) {
  return next.verify.empty() && next.told.empty() && next.end == Next::End::kNone;
}

}  // namespace

TEST_CASE("a piece is verified once, when its header and all of its bytes are there") {
  Rig rig;
  Promotion& promotion = rig.promotion;
  CHECK_FALSE(promotion.in_place());
  CHECK_FALSE(promotion.waits());
  CHECK(IsNothing(promotion.OnPieceRead(1, kPieceBytes / 2, absl::OkStatus())));
  CHECK(IsNothing(rig.Read(0)));  // no header yet
  const Next header = promotion.OnHeader(Header(kThreePieces), nullptr);
  REQUIRE(header.verify.size() == 1);  // half of the second is still to come
  CHECK(header.verify[0].first == 0);
  CHECK(header.verify[0].end == 1);
  const Next rest = promotion.OnPieceRead(1, kPieceBytes / 2, absl::OkStatus());
  REQUIRE(rest.verify.size() == 1);
  CHECK(rest.verify[0].first == 1);
  CHECK(IsNothing(promotion.OnVerified(header.verify[0], absl::OkStatus())));
  CHECK(IsNothing(promotion.OnVerified(rest.verify[0], absl::OkStatus())));
  CHECK(rig.Come(2).end == Next::End::kAllReady);
}

TEST_CASE("what was read before its header is verified when that comes, all of it") {
  Rig rig;
  for (const size_t piece : {2, 0, 1}) CHECK(IsNothing(rig.Read(piece)));
  const Next next = rig.promotion.OnHeader(Header(kThreePieces), nullptr);
  REQUIRE(next.verify.size() == 3);
  CHECK(IsNothing(rig.promotion.OnVerified(next.verify[2], absl::OkStatus())));
  CHECK(IsNothing(rig.promotion.OnVerified(next.verify[0], absl::OkStatus())));
  CHECK(rig.promotion.OnVerified(next.verify[1], absl::OkStatus()).end == Next::End::kAllReady);
}

TEST_CASE("pieces that were encrypted together are verified together") {
  const ImageShape shape{.payload_bytes = 130 * kPieceBytes, .tail_bytes = 0};
  REQUIRE(shape.unit_pieces() == 3);
  Rig rig(shape);
  SeededRandom random(1);
  const DataKey key;
  auto header = Header(shape);
  const ImageEncryption encryption = ImageCipher::NewEncryption(key, shape, &random);
  auto cipher = std::make_unique<ImageCipher>(key, header->identity, encryption);
  CHECK(IsNothing(rig.promotion.OnHeader(std::move(header), std::move(cipher))));
  CHECK(IsNothing(rig.Read(4)));
  CHECK(IsNothing(rig.Read(3)));
  const Next unit = rig.Read(5);
  REQUIRE(unit.verify.size() == 1);
  CHECK(unit.verify[0].first == 3);
  CHECK(unit.verify[0].end == 6);
  for (const size_t piece : {126, 127}) CHECK(IsNothing(rig.Read(piece)));
  CHECK(rig.Read(128).verify.size() == 1);
  const Next last = rig.Read(129);  // the unit of the last, which is its own
  REQUIRE(last.verify.size() == 1);
  CHECK(last.verify[0].first == 129);
  CHECK(last.verify[0].end == 130);
}

TEST_CASE("who waits for the last piece waits for the header in the arena as well") {
  Rig rig;
  Promotion& promotion = rig.promotion;
  promotion.OnHeader(Header(kThreePieces), nullptr);
  int some = 0, all = 0;
  CHECK(rig.Await(0, 2, [&](const absl::Status&) { ++some; }) == "waits");
  CHECK(rig.Await(1, 3, [&](const absl::Status&) { ++all; }) == "waits");
  CHECK(rig.Come(1).told.empty());
  CHECK(rig.Come(0).told.size() == 1);
  CHECK(some == 1);
  CHECK(rig.Await(0, 2) == "OK");
  const Next last = rig.Come(2);
  CHECK(last.end == Next::End::kAllReady);
  CHECK(all == 0);
  for (auto& one : promotion.EndHeader()) std::move(one)(absl::OkStatus());
  CHECK(all == 1);
  CHECK(rig.Await(0, 3) == "OK");
}

TEST_CASE("a promotion that failed verifies nothing more, and ends with what is under way") {
  Rig rig;
  Promotion& promotion = rig.promotion;
  promotion.OnHeader(Header(kThreePieces), nullptr);
  const Next taken = rig.Read(0);
  REQUIRE(taken.verify.size() == 1);
  CHECK(rig.Await(2, 3) == "waits");
  SECTION("as its tier could not read a piece") {
    const Next failed = promotion.OnPieceRead(1, kPieceBytes / 4, absl::DataLossError("EIO"));
    CHECK(failed.told.size() == 1);
    CHECK(failed.status == absl::UnavailableError("EIO"));  // nothing is known of the bytes
    CHECK(failed.end == Next::End::kNone);
    CHECK(promotion.failure().io);
    CHECK(IsNothing(
        promotion.OnPieceRead(1, kPieceBytes - kPieceBytes / 4, absl::OkStatus())));
    CHECK(promotion.failure().status == absl::DataLossError("EIO"));
    CHECK(IsNothing(promotion.OnVerified(taken.verify[0], absl::OkStatus())));
  }
  SECTION("as a tag did not match") {
    const Next failed =
        promotion.OnVerified(taken.verify[0], absl::UnauthenticatedError("unit 0"));
    CHECK(failed.told.size() == 1);
    CHECK(absl::IsDataLoss(failed.status));  // for waiters it is like any damage
    CHECK(promotion.failure().unauthentic);
    CHECK_FALSE(promotion.failure().io);
    CHECK(IsNothing(rig.Read(1)));
  }
  CHECK(rig.Await(0, 1) != "waits");
  CHECK(rig.Read(2).end == Next::End::kFailed);
}

TEST_CASE(
    "who asks a promotion that has failed for pieces that were ready is told of the failure") {
  Rig rig;
  rig.promotion.OnHeader(Header(kThreePieces), nullptr);
  rig.Come(0);
  rig.Come(1);
  CHECK(rig.Await(0, 2) == "OK");
  rig.promotion.OnPieceRead(2, rig.BytesOf(2), absl::DataLossError("EIO"));
  rig.promotion.EndReads();
  CHECK(rig.Await(0, 2) == "UNAVAILABLE: EIO");  // a miss to clients, and no damage
}

TEST_CASE("a header that is not believed says why the promotion failed") {
  Rig rig;
  SECTION("the tier could not read it") {
    rig.promotion.OnHeaderFailed(absl::UnavailableError("gone"), true);
    CHECK(rig.promotion.failure().io);
    CHECK_FALSE(rig.promotion.failure().keyless);
    CHECK(rig.Await(0, 1) == "UNAVAILABLE: gone");
  }
  SECTION("its key is not here") {
    rig.promotion.OnHeaderFailed(absl::NotFoundError("no such key"), false);
    CHECK(rig.promotion.failure().keyless);
    CHECK_FALSE(rig.promotion.failure().io);
    CHECK(rig.Await(0, 1) == "NOT_FOUND: no such key");
  }
  CHECK(IsNothing(rig.Read(0)));
  CHECK(IsNothing(rig.Read(1)));
  CHECK(rig.Read(2).end == Next::End::kFailed);
}

TEST_CASE("once who waits was told that it is late, nobody waits before it is promised again") {
  Rig rig;
  const auto await = [&](int64_t now) {
    PieceWaiters::Callback ready = [](const absl::Status&) {};
    const auto known = rig.promotion.Await({0, 1}, Promotion::Patience::kAsPromised,
                                           MonotonicTime(now), ready);
    return known.has_value() ? known->ToString() : "waits";
  };
  rig.promotion.Promise(MonotonicTime(10));
  CHECK(await(9) == "waits");
  CHECK(await(10) == "UNAVAILABLE: the chunk is late");
  CHECK(rig.promotion.TakeImpatient().size() == 1);
  CHECK(await(9) == "UNAVAILABLE: the chunk is late");  // it had read the clock before
  CHECK(rig.Await(0, 1) == "waits");                    // to the end
  rig.promotion.Promise(MonotonicTime(20));
  CHECK(await(19) == "waits");
}

TEST_CASE("an image in place has its bytes and its end, and waits for its header alone") {
  const auto promotion = Promotion::InPlace(ChunkSlot(3), kThreePieces, {});
  CHECK(promotion->in_place());
  CHECK(promotion->slot() == ChunkSlot(3));
  const Next header = promotion->OnHeader(Header(kThreePieces), nullptr);
  REQUIRE(header.verify.size() == 3);
  for (size_t piece = 0; piece < 3; ++piece) {
    const Next next = promotion->OnVerified(header.verify[piece], absl::OkStatus());
    CHECK((next.end == Next::End::kAllReady) == (piece == 2));
  }
  PieceWaiters::Callback nobody = [](const absl::Status&) {};
  CHECK(promotion->Await({0, 3}, Promotion::Patience::kToTheEnd, MonotonicTime(0), nobody) ==
        absl::OkStatus());
}

TEST_CASE("an image in place whose header is another's has failed at once") {
  const auto promotion = Promotion::InPlace(ChunkSlot(3), kThreePieces, {});
  CHECK(promotion->OnHeaderFailed(absl::DataLossError("of another"), false).end ==
        Next::End::kFailed);
  CHECK(promotion->failure().status == absl::DataLossError("of another"));
}

}  // namespace kvkeep::store_internal
