#include "tiers/host/piece_order.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tiers/base/units.h"

namespace kvkeep {
namespace {

// Takes piece by piece, and compares with BytesThere after each.
void CheckAll(const ArenaGeometry& geometry, uint64_t page_bytes) {
  const PieceOrder order(geometry, page_bytes);
  std::vector<uint64_t> there(geometry.segment_count());
  uint64_t all = 0;
  CHECK(order.BytesThere(0) == 0);
  for (uint64_t number = 0; number < order.pieces(); ++number) {
    const PieceOrder::Piece piece = order.at(number);
    REQUIRE(piece.bytes > 0);
    REQUIRE(piece.offset == there[piece.segment]);  // from the segment's start, without a gap
    REQUIRE(piece.offset % page_bytes == 0);
    there[piece.segment] += piece.bytes;
    all += piece.bytes;
    for (size_t segment = 0; segment < there.size(); ++segment) {
      REQUIRE(order.BytesThere(segment, number + 1) == there[segment]);
    }
    REQUIRE(order.BytesThere(number + 1) == all);
  }
  CHECK(all == geometry.capacity_bytes);
}

}  // namespace

TEST_CASE("pieces of an arena come in rounds over its segments, and are all of it in the end") {
  CheckAll({.capacity_bytes = 8 * kMiB, .segment_bytes = 2 * kMiB}, kBlockBytes);
  CheckAll({.capacity_bytes = 7 * kMiB + kBlockBytes, .segment_bytes = 2 * kMiB}, kBlockBytes);
  CheckAll({.capacity_bytes = kMiB, .segment_bytes = 2 * kMiB}, kBlockBytes);
  CheckAll({.capacity_bytes = 2 * kMiB, .segment_bytes = 2 * kMiB}, kBlockBytes);
  CheckAll({.capacity_bytes = 10 * kMiB, .segment_bytes = 4 * kMiB}, 2 * kMiB);
}

TEST_CASE("the first round gives every segment a sixty-fourth of it") {
  const PieceOrder order({.capacity_bytes = 60 * kMiB, .segment_bytes = 16 * kMiB}, kBlockBytes);
  CHECK(order.piece_bytes() == 256 * kKiB);
  CHECK(order.round_pieces() == 4);
  CHECK(order.round_bytes() == kMiB);
  for (size_t segment = 0; segment < 4; ++segment) {
    CHECK(order.BytesThere(segment, order.round_pieces()) == 256 * kKiB);
  }
}

}  // namespace kvkeep
