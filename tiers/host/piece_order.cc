#include "tiers/host/piece_order.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr uint64_t kPiecesPerSegment = 64;

}  // namespace

PieceOrder::PieceOrder(const ArenaGeometry& geometry, uint64_t page_bytes)
    : geometry_(geometry),
      piece_bytes_(std::max(
          geometry.segment_bytes / kPiecesPerSegment / page_bytes * page_bytes, page_bytes)),
      segments_(geometry.segment_count()),
      rounds_of_last_(DivideRoundUp(geometry.bytes_of(segments_ - 1), piece_bytes_)),
      pieces_((segments_ - 1) * DivideRoundUp(geometry.segment_bytes, piece_bytes_) +
              rounds_of_last_) {
  KVKEEP_CHECK(geometry.segment_bytes % page_bytes == 0 && piece_bytes_ % page_bytes == 0);
  KVKEEP_CHECK(pieces_ >= segments_);
}

PieceOrder::Piece PieceOrder::at(uint64_t number) const {
  KVKEEP_CHECK(number < pieces_);
  const uint64_t with_last = rounds_of_last_ * segments_;
  uint64_t round = number / segments_;
  uint64_t segment = number % segments_;
  if (number >= with_last) {  // the rest belongs to the others
    round = rounds_of_last_ + (number - with_last) / (segments_ - 1);
    segment = (number - with_last) % (segments_ - 1);
  }
  const uint64_t offset = round * piece_bytes_;
  KVKEEP_CHECK(offset < geometry_.bytes_of(segment));
  return {.segment = static_cast<size_t>(segment),
          .offset = offset,
          .bytes = std::min(piece_bytes_, geometry_.bytes_of(segment) - offset)};
}

uint64_t PieceOrder::BytesThere(size_t segment, uint64_t taken) const {
  KVKEEP_CHECK(segment < segments_ && taken <= pieces_);
  const uint64_t with_last = rounds_of_last_ * segments_;
  uint64_t own = taken / segments_ + (segment < taken % segments_ ? 1 : 0);
  if (taken > with_last) {
    const uint64_t others = segments_ - 1;
    const uint64_t more = taken - with_last;
    own = rounds_of_last_;
    if (segment < others) own += more / others + (segment < more % others ? 1 : 0);
  }
  return std::min(own * piece_bytes_, geometry_.bytes_of(segment));
}

uint64_t PieceOrder::BytesThere(uint64_t taken) const {
  uint64_t bytes = 0;
  for (size_t segment = 0; segment < segments_; ++segment) bytes += BytesThere(segment, taken);
  return bytes;
}

}  // namespace kvkeep
