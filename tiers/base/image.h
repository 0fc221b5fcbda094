// The image: the form of a chunk in every tier. Header page + payload + metadata tail.
//
//   byte 0      header page, one block of 4096 bytes (layout below, little-endian)
//   byte 4096   payload
//   RoundUp(4096 + payload_bytes, 64)  metadata tail, if any; zeros up to the end of the last block
//
// Header page, format version 3:
//      0   8  magic "KVKIMAGE"                 2176  16  root: XXH3-128 of bytes 0..2176
//      8   4  format version                   2192   1  tier (2, 3, 4)
//     12   4  number of pieces                 2193   7  zero
//     16  16  namespace digest                 2200   8  number of extents (1..32)
//     32  32  key                              2208  16  UUID of the arena or device it lies on
//     64   4  part                             2224   8  incarnation
//     68   4  payload bytes                    2232   8  generation
//     72   4  tail bytes                       2240 512  extents: 32 x {first block, blocks}, 8 + 8
//     76   4  zero                             2752  32  MAC: HMAC-SHA256 of bytes 0..2752
//     80   8  creation time, us since 1970     2784      zeros to 4096
//     88   8  XXH3-64 of the tail
//     96  32  zero
//    128 2048 XXH3-64 of each piece (at most 256)
//
// Format version 4 is an encrypted image. It lies in G3 or G4, never in G2 (how: tiers/crypt):
//     88 and 128..2176 are ciphertext        2784  16  tag of those checksums
//     96  16  key id                         2800 1024  tag of each cipher unit (at most 64)
//    112  16  nonce                          3824      zeros to 4096
// and so is all that follows the header page, in units: one piece each, two of them above 64 MiB of
// payload, three above 128, four above 192; the last one goes to the end of the last block.
//
// Versions 1 and 2 differ from 3 and 4 only in the MAC. It covers bytes 2176..2752, so it protects
// the root but not the identity: a writer to the tier can forge another identity with the same
// root. They are still read.
//
// Identity (up to the root) is made once, at put, and is the same in every tier. Placement is made
// anew for every place. The MAC key is secret (state file, 0600), so nobody else makes a header
// that verifies. Piece checksums have no key: they find faults; the tags of an encrypted image find
// attackers. Reading a header of another version is FailedPrecondition: never a guess.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/extent.h"
#include "tiers/base/key.h"
#include "tiers/base/units.h"

namespace kvkeep {

inline constexpr uint32_t kImageFormatVersion = 3;
inline constexpr uint32_t kEncryptedImageFormatVersion = 4;
inline constexpr size_t kHeaderBytes = kBlockBytes;
inline constexpr size_t kTailAlignment = 64;
inline constexpr size_t kMaxCipherUnits = 64;

enum class Tier : uint8_t { kNone = 0, kG2 = 2, kG3 = 3, kG4 = 4 };

using MacKey = std::array<std::byte, 32>;
using CipherTag = std::array<std::byte, 16>;
using ImageNonce = Digest<struct ImageNonceTag, 16>;
using HeaderPage = std::span<std::byte, kHeaderBytes>;
using ConstHeaderPage = std::span<const std::byte, kHeaderBytes>;

// Sizes of a chunk's parts, and where they lie in its image.
struct ImageShape {
  uint32_t payload_bytes = 0;
  uint32_t tail_bytes = 0;

  uint64_t tail_offset() const {
    return RoundUp(kHeaderBytes + uint64_t{payload_bytes}, kTailAlignment);
  }
  // Bytes that mean something; the rest of the last block is zero.
  uint64_t used_bytes() const {
    return tail_bytes > 0 ? tail_offset() + tail_bytes : kHeaderBytes + uint64_t{payload_bytes};
  }
  BlockCount blocks() const { return BlockCount(DivideRoundUp(used_bytes(), kBlockBytes)); }
  size_t pieces() const { return PieceCount(payload_bytes); }
  // Where a piece begins and ends in the image; the last one goes to the end of the last block.
  uint64_t piece_begin(size_t piece) const { return kHeaderBytes + piece * kPieceBytes; }
  uint64_t piece_end(size_t piece) const {
    KVKEEP_CHECK(piece < pieces());
    return piece + 1 == pieces() ? blocks().value() * kBlockBytes : piece_begin(piece + 1);
  }
  // For an encrypted image: pieces of a unit, number of units, and where a unit begins and ends in
  // the image.
  size_t unit_pieces() const { return DivideRoundUp(pieces(), kMaxCipherUnits); }
  size_t units() const { return DivideRoundUp(pieces(), unit_pieces()); }
  uint64_t unit_begin(size_t unit) const {
    return kHeaderBytes + unit * unit_pieces() * kPieceBytes;
  }
  uint64_t unit_end(size_t unit) const {
    KVKEEP_CHECK(unit < units());
    return unit + 1 == units() ? blocks().value() * kBlockBytes : unit_begin(unit + 1);
  }
  // Returns the unit of the byte at `offset`. REQUIRES: the byte is behind the header page.
  size_t unit_at(uint64_t offset) const {
    KVKEEP_CHECK(offset >= kHeaderBytes);
    return std::min<size_t>((offset - kHeaderBytes) / (unit_pieces() * kPieceBytes), units() - 1);
  }
  bool operator==(const ImageShape&) const = default;
};

struct ImageIdentity {
  ChunkId id;
  ImageShape shape;
  uint64_t created_unix_us = 0;
  uint64_t tail_checksum = 0;             // XXH3-64 of the tail, of zero bytes when there is none
  std::vector<uint64_t> piece_checksums;  // shape.pieces() of them
};

struct ImagePlacement {
  Tier tier = Tier::kNone;
  Uuid place;  // of the arena or device
  Incarnation incarnation;
  Generation generation;
  ExtentList extents;

  bool operator==(const ImagePlacement&) const = default;
};

struct ImageEncryption {
  KeyId key_id;  // never zero
  ImageNonce nonce;
  CipherTag checksums_tag{};
  std::vector<CipherTag> unit_tags;  // shape.units() of them

  bool operator==(const ImageEncryption&) const = default;
};

struct ImageHeader {
  ImageIdentity identity;  // of an encrypted image: its checksums are ciphertext
  ImagePlacement placement;
  std::optional<ImageEncryption> encryption;
};

// What a header page says of its image and of where it lies, without the checksums.
struct ImageClaim {
  ChunkId id;
  ImageShape shape;
  ImagePlacement placement;
};

// Returns why these extents cannot hold an image of so many blocks, or null if they can: 1 to
// kMaxExtents of them, none empty, none over another, no sum or end that wraps.
const char* WhyBadExtents(const ExtentList& extents, BlockCount blocks);

// OK when the shape is one that kvkeep stores; InvalidArgument names the field and its limit.
absl::Status ValidateShape(const ImageShape& shape);

// Writes a whole header page. REQUIRES: a valid shape, its number of checksums and tags, 1..32
// extents of shape.blocks() blocks in total.
void EncodeHeader(const ImageHeader& header, const MacKey& mac_key, HeaderPage page);

// Returns whether a page begins as a header page does. Says nothing of the rest.
bool HasImageMagic(ConstHeaderPage page);

// Returns the root checksum of an encoded page, which names the identity in 16 bytes.
Digest128 HeaderRoot(ConstHeaderPage page);

// Reads a header page that may hold anything. DataLoss when it is not a header of ours or damaged;
// FailedPrecondition when it is one of another format version.
absl::StatusOr<ImageHeader> DecodeHeader(ConstHeaderPage page, const MacKey& mac_key);

// Reads the same of a page without its MAC, which takes most of the time. The root shows that the
// identity is not damaged, but not who wrote it, and the placement may be damaged. Call
// DecodeHeader before you read the image. Looks at the first kClaimBytes of the page.
inline constexpr size_t kClaimBytes = 2752;
absl::StatusOr<ImageClaim> DecodeClaim(ConstHeaderPage page);

}  // namespace kvkeep
