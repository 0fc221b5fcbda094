// An image on its way into G2: what may be verified when, who is told, and when it has ended.
#include "tiers/store/promotion.h"

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"
#include "tiers/store/lower_tier.h"

namespace kvkeep::store_internal {
namespace {

// Nobody asks it for anything here: it is a name.
class SomeTier final : public LowerTier {
 public:
  SomeTier() : LowerTier(0, {}) {}
  void Read(ImageRead) override {}
  void Write(ImageWrite) override {}
  absl::Status CheckHeader(const ImageHeader&, const Chunk&) const override { return {}; }
  void NoteBad(const ChunkId&) override {}
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

struct Rig {
  explicit Rig(const ImageShape& shape = kThreePieces) : promotion(&tier, {}, shape) {
    promotion.BeginReads();
  }
  uint64_t BytesOf(size_t piece) const {
    return piece + 1 < promotion.pieces()
               ? kPieceBytes
               : promotion.bytes() - kHeaderBytes - piece * kPieceBytes;
  }
  void Read(size_t piece) { promotion.OnPieceRead(piece, BytesOf(piece), absl::OkStatus()); }
  // Reads and verifies it.
  void Come(size_t piece) {
    Read(piece);
    const auto taken = promotion.TakeToVerify(piece);
    REQUIRE(taken.has_value());
    promotion.OnVerified(*taken, absl::OkStatus());
    for (auto& one : promotion.TakeReady(*taken).first) std::move(one)(absl::OkStatus());
  }

  SomeTier tier;
  Promotion promotion;
};

}  // namespace

TEST_CASE("a piece is verified once, when its header and all of its bytes are there") {
  Rig rig;
  Promotion& promotion = rig.promotion;
  CHECK_FALSE(promotion.in_place());
  CHECK_FALSE(promotion.waits());
  CHECK(promotion.outstanding() == 4);  // three pieces and the header
  promotion.OnPieceRead(1, kPieceBytes / 2, absl::OkStatus());
  rig.Read(0);
  CHECK_FALSE(promotion.TakeToVerify(0).has_value());  // no header yet
  promotion.OnHeader(Header(kThreePieces), nullptr);
  const auto first = promotion.TakeToVerify(0);
  REQUIRE(first.has_value());
  CHECK(first->first == 0);
  CHECK(first->end == 1);
  CHECK_FALSE(promotion.TakeToVerify(0).has_value());  // taken
  CHECK_FALSE(promotion.TakeToVerify(1).has_value());  // half of it is to come
  promotion.OnPieceRead(1, kPieceBytes / 2, absl::OkStatus());
  const auto second = promotion.TakeToVerify(1);
  REQUIRE(second.has_value());
  CHECK(promotion.outstanding() == 3);  // the last piece, two verifications
  promotion.OnVerified(*first, absl::OkStatus());
  promotion.OnVerified(*second, absl::OkStatus());
  CHECK_FALSE(promotion.all_ready());
  rig.Come(2);
  CHECK(promotion.all_ready());
  CHECK(promotion.outstanding() == 0);
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
  rig.promotion.OnHeader(std::move(header), std::move(cipher));
  rig.Read(4);
  rig.Read(3);
  CHECK_FALSE(rig.promotion.TakeToVerify(3).has_value());
  rig.Read(5);
  const auto unit = rig.promotion.TakeToVerify(5);
  REQUIRE(unit.has_value());
  CHECK(unit->first == 3);
  CHECK(unit->end == 6);
  for (const size_t piece : {126, 127, 128, 129}) rig.Read(piece);
  const auto last = rig.promotion.TakeToVerify(129);  // the unit of the last, which is its own
  REQUIRE(last.has_value());
  CHECK(last->first == 129);
  CHECK(last->end == 130);
}

TEST_CASE("who waits for the last piece waits for the header in the arena as well") {
  Rig rig;
  Promotion& promotion = rig.promotion;
  promotion.OnHeader(Header(kThreePieces), nullptr);
  int some = 0, all = 0;
  promotion.Wait({0, 2}, [&](const absl::Status&) { ++some; });
  promotion.Wait({1, 3}, [&](const absl::Status&) { ++all; });
  CHECK_FALSE(promotion.AreReady({0, 1}));
  rig.Come(1);
  CHECK(some == 0);
  rig.Come(0);
  CHECK(some == 1);
  CHECK(promotion.AreReady({0, 2}));
  rig.Come(2);
  CHECK(all == 0);
  CHECK_FALSE(promotion.AreReady({2, 3}));
  promotion.BeginHeader();
  promotion.EndHeader();
  CHECK(promotion.AreReady({0, 3}));
  for (auto& one : promotion.TakeWaiters()) std::move(one)(absl::OkStatus());
  CHECK(all == 1);
}

TEST_CASE("a promotion that failed verifies nothing more, and ends with what is under way") {
  Rig rig;
  Promotion& promotion = rig.promotion;
  promotion.OnHeader(Header(kThreePieces), nullptr);
  rig.Read(0);
  const auto taken = promotion.TakeToVerify(0);
  REQUIRE(taken.has_value());
  SECTION("as its tier could not read a piece") {
    promotion.OnPieceRead(1, kPieceBytes / 4, absl::DataLossError("EIO"));
    CHECK(promotion.failed_io());
    promotion.OnPieceRead(1, kPieceBytes - kPieceBytes / 4, absl::OkStatus());
    CHECK_FALSE(promotion.TakeToVerify(1).has_value());
    CHECK(absl::IsDataLoss(promotion.failure()));
    CHECK(promotion.failure().message() == "EIO");
    promotion.OnVerified(*taken, absl::OkStatus());
  }
  SECTION("as a tag did not match") {
    promotion.OnVerified(*taken, absl::UnauthenticatedError("unit 0"));
    CHECK(promotion.unauthentic());
    CHECK_FALSE(promotion.failed_io());
    CHECK(absl::IsDataLoss(promotion.failure()));  // for whoever waits it is as any damage
    rig.Read(1);
  }
  CHECK(promotion.outstanding() == 1);
  rig.Read(2);
  CHECK_FALSE(promotion.TakeToVerify(2).has_value());
  CHECK(promotion.outstanding() == 0);
}

TEST_CASE("a header that is not believed says why the promotion failed") {
  Rig rig;
  SECTION("the tier could not read it") {
    rig.promotion.OnHeaderFailed(absl::UnavailableError("gone"), true);
    CHECK(rig.promotion.failed_io());
    CHECK_FALSE(rig.promotion.keyless());
  }
  SECTION("its key is not here") {
    rig.promotion.OnHeaderFailed(absl::NotFoundError("no such key"), false);
    CHECK(rig.promotion.keyless());
    CHECK_FALSE(rig.promotion.failed_io());
  }
  CHECK(rig.promotion.outstanding() == 3);
  CHECK_FALSE(rig.promotion.failure().ok());
}

TEST_CASE("an image in place has its bytes and its end, and waits for its header alone") {
  const auto promotion = Promotion::InPlace(kThreePieces);
  CHECK(promotion->in_place());
  CHECK(promotion->outstanding() == 1);
  promotion->OnHeader(Header(kThreePieces), nullptr);
  for (size_t piece = 0; piece < 3; ++piece) {
    const auto taken = promotion->TakeToVerify(piece);
    REQUIRE(taken.has_value());
    promotion->OnVerified(*taken, absl::OkStatus());
  }
  CHECK(promotion->all_ready());
  CHECK(promotion->AreReady({0, 3}));
  CHECK(promotion->outstanding() == 0);
}

}  // namespace kvkeep::store_internal
