// PieceOrder: the order in which an arena takes memory that comes piece by piece. It goes in
// rounds, a piece of every segment, so the owner of whole segments has its part of the memory at
// any time. One number, how many pieces were taken, tells for every byte whether it has memory.
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
  // Pieces of the first round, which give every segment some memory.
  uint64_t round_pieces() const { return segments_; }
  uint64_t round_bytes() const { return BytesThere(segments_); }

  struct Piece {
    size_t segment = 0;
    uint64_t offset = 0;  // in the segment
    uint64_t bytes = 0;
  };
  // REQUIRES: number < pieces().
  Piece at(uint64_t number) const;

  // Returns the bytes that the first `taken` pieces have in the segment, from its start, or in all
  // segments.
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
