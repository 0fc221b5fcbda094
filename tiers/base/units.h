// Sizes that every part of kvkeep agrees on (block, piece, chunk: CONTRIBUTING.md, "Words").
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvkeep {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;
inline constexpr uint64_t kTiB = 1024 * kGiB;

// A tier is counted in blocks; every extent, header page and device I/O is a multiple of one.
inline constexpr size_t kBlockBytes = 4096;
// Unit of checksum, device I/O, readiness and byte ranges of a payload.
inline constexpr size_t kPieceBytes = 1 * kMiB;
// Largest and smallest payload of one chunk.
inline constexpr uint64_t kMaxPayloadBytes = 256 * kMiB;
inline constexpr uint64_t kMinPayloadBytes = 1;
inline constexpr size_t kMaxPieces = kMaxPayloadBytes / kPieceBytes;
// Largest metadata tail of one chunk.
inline constexpr size_t kMaxTailBytes = 16 * kKiB;
// A chunk's place is a list of at most this many extents.
inline constexpr size_t kMaxExtents = 32;

constexpr uint64_t DivideRoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit;
}
constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return DivideRoundUp(value, unit) * unit;
}

}  // namespace kvkeep
