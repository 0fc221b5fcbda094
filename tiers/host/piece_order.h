// PieceOrder: in which order an arena takes memory that comes piece by piece. In rounds, a piece of
// every segment: whoever owns whole segments has its part of what is there at any time. So one
// number, how many pieces were taken, says of every byte whether it has memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiers/host/segment_files.h"

namespace kvkeep {

class PieceOrder {
 public:
  // A segment has 64 pieces, or one a page where it has fewer pages.
  PieceOrder(const ArenaGeometry& geometry, uint64_t page_bytes);

  uint64_t piece_bytes() const { return piece_bytes_; }
  uint64_t pieces() const { return pieces_; }  // of the whole arena
  // Of the first round: with them, every segment has some memory.
  uint64_t round_pieces() const { return segments_; }
  uint64_t round_bytes() const { return BytesThere(segments_); }

  struct Piece {
    size_t segment = 0;
    uint64_t offset = 0;  // in the segment
    uint64_t bytes = 0;
  };
  // REQUIRES: number < pieces().
  Piece at(uint64_t number) const;

  // Of the segment, from its start, or of all: what the first `taken` pieces are.
  uint64_t BytesThere(size_t segment, uint64_t taken) const;
  uint64_t BytesThere(uint64_t taken) const;

 private:
  const ArenaGeometry geometry_;
  const uint64_t piece_bytes_;
  const uint64_t segments_;
  const uint64_t rounds_of_last_;  // the last segment may be shorter, so that it has fewer pieces
  const uint64_t pieces_;
};

}  // namespace kvkeep
