#include "tiers/base/image.h"

#include <absl/strings/str_cat.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/hmac.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kMagic = "KVKIMAGE";
constexpr size_t kVersionAt = 8;
constexpr size_t kNamespaceAt = 16;
constexpr size_t kKeyAt = 32;
constexpr size_t kPartAt = 64;
constexpr size_t kPayloadBytesAt = 68;
constexpr size_t kTailBytesAt = 72;
constexpr size_t kCreatedAt = 80;
constexpr size_t kTailChecksumAt = 88;
constexpr size_t kKeyIdAt = 96;
constexpr size_t kNonceAt = 112;
constexpr size_t kPiecesAt = 128;
constexpr size_t kRootAt = kPiecesAt + kMaxPieces * sizeof(uint64_t);
constexpr size_t kTierAt = kRootAt + 16;
constexpr size_t kExtentCountAt = kTierAt + 8;
constexpr size_t kPlaceAt = kExtentCountAt + 8;
constexpr size_t kIncarnationAt = kPlaceAt + 16;
constexpr size_t kGenerationAt = kIncarnationAt + 8;
constexpr size_t kExtentsAt = kGenerationAt + 8;
constexpr size_t kMacAt = kExtentsAt + kMaxExtents * 16;
constexpr size_t kMacBytes = 32;
constexpr size_t kChecksumsTagAt = kMacAt + kMacBytes;
constexpr size_t kUnitTagsAt = kChecksumsTagAt + sizeof(CipherTag);
// The layout documented in the header file; changing it means a new format version.
static_assert(kRootAt == 2176 && kTierAt == 2192 && kExtentsAt == 2240 && kMacAt == 2752);
static_assert(kClaimBytes == kMacAt);
static_assert(kChecksumsTagAt == 2784 && kUnitTagsAt == 2800);
static_assert(kUnitTagsAt + kMaxCipherUnits * sizeof(CipherTag) <= kHeaderBytes);
static_assert(kMaxPieces % kMaxCipherUnits == 0);

using Mac = std::array<std::byte, kMacBytes>;

// Versions that are read, never written: their MAC covers the root in place of the identity.
constexpr uint32_t kFormerVersion = 1, kFormerEncryptedVersion = 2;

uint32_t VersionOf(ConstHeaderPage page) { return LoadAt<uint32_t>(page.data() + kVersionAt); }

bool IsEncrypted(uint32_t version) {
  return version == kEncryptedImageFormatVersion || version == kFormerEncryptedVersion;
}

Mac ComputeMac(ConstHeaderPage page, const MacKey& key) {
  const uint32_t version = VersionOf(page);
  const bool former = version == kFormerVersion || version == kFormerEncryptedVersion;
  const size_t from = former ? kRootAt : 0;
  Mac mac;
  HmacSha256(key, page.subspan(from, kMacAt - from), mac);
  return mac;
}

Digest128 ComputeRoot(ConstHeaderPage page) { return Xxh3_128(page.first(kRootAt)); }

template <typename D>
D LoadDigest(const std::byte* from) {
  D digest;
  std::memcpy(digest.bytes.data(), from, D::kSize);
  return digest;
}

void EncodeEncryption(const ImageEncryption& encryption, const ImageShape& shape, std::byte* at) {
  KVKEEP_CHECK(!encryption.key_id.is_zero() && encryption.unit_tags.size() == shape.units());
  std::memcpy(at + kKeyIdAt, encryption.key_id.bytes.data(), KeyId::kSize);
  std::memcpy(at + kNonceAt, encryption.nonce.bytes.data(), ImageNonce::kSize);
  StoreAt<CipherTag>(at + kChecksumsTagAt, encryption.checksums_tag);
  std::memcpy(at + kUnitTagsAt, encryption.unit_tags.data(),
              encryption.unit_tags.size() * sizeof(CipherTag));
}

ImageEncryption DecodeEncryption(const std::byte* at, const ImageShape& shape) {
  ImageEncryption encryption;
  encryption.key_id = LoadDigest<KeyId>(at + kKeyIdAt);
  encryption.nonce = LoadDigest<ImageNonce>(at + kNonceAt);
  encryption.checksums_tag = LoadAt<CipherTag>(at + kChecksumsTagAt);
  encryption.unit_tags.resize(shape.units());
  std::memcpy(encryption.unit_tags.data(), at + kUnitTagsAt,
              encryption.unit_tags.size() * sizeof(CipherTag));
  return encryption;
}

bool Overlap(const Extent& a, const Extent& b) {
  return a.first.value() < b.end() && b.first.value() < a.end();
}

absl::StatusOr<ImagePlacement> DecodePlacement(ConstHeaderPage page) {
  ImagePlacement placement;
  placement.tier = static_cast<Tier>(LoadAt<uint8_t>(page.data() + kTierAt));
  placement.place = LoadDigest<Uuid>(page.data() + kPlaceAt);
  placement.incarnation = Incarnation(LoadAt<uint64_t>(page.data() + kIncarnationAt));
  placement.generation = Generation(LoadAt<uint64_t>(page.data() + kGenerationAt));
  const uint64_t extents = LoadAt<uint64_t>(page.data() + kExtentCountAt);
  if (extents == 0 || extents > kMaxExtents) {  // what follows reads so many
    return absl::DataLossError(absl::StrCat("image header names ", extents, " extents"));
  }
  for (uint64_t i = 0; i < extents; ++i) {
    const std::byte* at = page.data() + kExtentsAt + i * 16;
    placement.extents.push_back({.first = BlockNumber(LoadAt<uint64_t>(at)),
                                 .count = BlockCount(LoadAt<uint64_t>(at + 8))});
  }
  return placement;
}

// OK: it is a page of a version that is read, and its identity matches its root checksum.
absl::Status CheckRoot(ConstHeaderPage page) {
  if (!HasImageMagic(page)) return absl::DataLossError("no image header here");
  const uint32_t version = VersionOf(page);
  if (version < kFormerVersion || version > kEncryptedImageFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat("image format version ", version,
                                                      ", this build reads ", kFormerVersion, " to ",
                                                      kEncryptedImageFormatVersion));
  }
  if (HeaderRoot(page) != ComputeRoot(page)) {
    return absl::DataLossError("image header: identity does not match its root checksum");
  }
  return absl::OkStatus();
}

// Reads what a page says, if it can be.
absl::StatusOr<ImageClaim> DecodeFields(ConstHeaderPage page) {
  const std::byte* const at = page.data();
  ImageClaim claim;
  claim.id.ns = LoadDigest<NamespaceDigest>(at + kNamespaceAt);
  claim.id.key = LoadDigest<ChunkKey>(at + kKeyAt);
  claim.id.part = PartId(LoadAt<uint32_t>(at + kPartAt));
  claim.shape.payload_bytes = LoadAt<uint32_t>(at + kPayloadBytesAt);
  claim.shape.tail_bytes = LoadAt<uint32_t>(at + kTailBytesAt);
  if (!ValidateShape(claim.shape).ok() || LoadAt<uint32_t>(at + 12) != claim.shape.pieces()) {
    return absl::DataLossError("image header: impossible sizes");
  }
  KVKEEP_ASSIGN_OR_RETURN(claim.placement, DecodePlacement(page));
  if (const char* why = WhyBadExtents(claim.placement.extents, claim.shape.blocks())) {
    return absl::DataLossError(absl::StrCat("image header: impossible ", why));
  }
  return claim;
}

}  // namespace

const char* WhyBadExtents(const ExtentList& extents, BlockCount blocks) {
  if (extents.empty() || extents.size() > kMaxExtents) return "number of extents";
  uint64_t total = 0;
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    const uint64_t count = extent.count.value();
    // Bounded by the image first, so that neither the sum nor the end can overflow unnoticed.
    if (count == 0 || count > blocks.value()) return "extent length";
    if (extent.end() < extent.first.value()) return "extent position";
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(extents[j], extent)) return "extents that overlap";
    }
    total += count;
  }
  return total == blocks.value() ? nullptr : "extents that do not hold the image";
}

absl::Status ValidateShape(const ImageShape& shape) {
  if (shape.payload_bytes < kMinPayloadBytes || shape.payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("payload_bytes is ", shape.payload_bytes,
                                                   ", allowed are ", kMinPayloadBytes, " to ",
                                                   kMaxPayloadBytes));
  }
  if (shape.tail_bytes > kMaxTailBytes) {
    return absl::InvalidArgumentError(absl::StrCat("metadata is ", shape.tail_bytes,
                                                   " bytes, allowed are at most ", kMaxTailBytes));
  }
  return absl::OkStatus();
}

void EncodeHeader(const ImageHeader& header, const MacKey& mac_key, HeaderPage page) {
  const ImageIdentity& identity = header.identity;
  const ImagePlacement& placement = header.placement;
  KVKEEP_CHECK(ValidateShape(identity.shape).ok());
  KVKEEP_CHECK(identity.piece_checksums.size() == identity.shape.pieces());
  KVKEEP_CHECK(!placement.extents.empty() && placement.extents.size() <= kMaxExtents);
  KVKEEP_CHECK(TotalBlocks(placement.extents) == identity.shape.blocks());

  std::fill(page.begin(), page.end(), std::byte{0});
  std::byte* const at = page.data();
  std::memcpy(at, kMagic.data(), kMagic.size());
  StoreAt<uint32_t>(at + kVersionAt, header.encryption.has_value() ? kEncryptedImageFormatVersion
                                                                   : kImageFormatVersion);
  if (header.encryption.has_value()) {
    EncodeEncryption(*header.encryption, identity.shape, at);
  }
  StoreAt<uint32_t>(at + 12, static_cast<uint32_t>(identity.piece_checksums.size()));
  std::memcpy(at + kNamespaceAt, identity.id.ns.bytes.data(), NamespaceDigest::kSize);
  std::memcpy(at + kKeyAt, identity.id.key.bytes.data(), ChunkKey::kSize);
  StoreAt<uint32_t>(at + kPartAt, identity.id.part.value());
  StoreAt<uint32_t>(at + kPayloadBytesAt, identity.shape.payload_bytes);
  StoreAt<uint32_t>(at + kTailBytesAt, identity.shape.tail_bytes);
  StoreAt<uint64_t>(at + kCreatedAt, identity.created_unix_us);
  StoreAt<uint64_t>(at + kTailChecksumAt, identity.tail_checksum);
  std::memcpy(at + kPiecesAt, identity.piece_checksums.data(),
              identity.piece_checksums.size() * sizeof(uint64_t));
  StoreAt<Digest128>(at + kRootAt, ComputeRoot(page));

  StoreAt<uint8_t>(at + kTierAt, static_cast<uint8_t>(placement.tier));
  StoreAt<uint64_t>(at + kExtentCountAt, placement.extents.size());
  std::memcpy(at + kPlaceAt, placement.place.bytes.data(), Uuid::kSize);
  StoreAt<uint64_t>(at + kIncarnationAt, placement.incarnation.value());
  StoreAt<uint64_t>(at + kGenerationAt, placement.generation.value());
  for (size_t i = 0; i < placement.extents.size(); ++i) {
    StoreAt<uint64_t>(at + kExtentsAt + i * 16, placement.extents[i].first.value());
    StoreAt<uint64_t>(at + kExtentsAt + i * 16 + 8, placement.extents[i].count.value());
  }
  StoreAt<Mac>(at + kMacAt, ComputeMac(page, mac_key));
}

bool HasImageMagic(ConstHeaderPage page) {
  return std::memcmp(page.data(), kMagic.data(), kMagic.size()) == 0;
}

Digest128 HeaderRoot(ConstHeaderPage page) { return LoadAt<Digest128>(page.data() + kRootAt); }

absl::StatusOr<ImageClaim> DecodeClaim(ConstHeaderPage page) {
  KVKEEP_RETURN_IF_ERROR(CheckRoot(page));
  return DecodeFields(page);
}

absl::StatusOr<ImageHeader> DecodeHeader(ConstHeaderPage page, const MacKey& mac_key) {
  const std::byte* const at = page.data();
  KVKEEP_RETURN_IF_ERROR(CheckRoot(page));
  const Mac mac = ComputeMac(page, mac_key);
  if (CRYPTO_memcmp(at + kMacAt, mac.data(), mac.size()) != 0) {
    return absl::DataLossError("image header: does not match its MAC");
  }
  KVKEEP_ASSIGN_OR_RETURN(ImageClaim claim, DecodeFields(page));

  ImageHeader header;
  ImageIdentity& identity = header.identity;
  identity.id = claim.id;
  identity.shape = claim.shape;
  identity.created_unix_us = LoadAt<uint64_t>(at + kCreatedAt);
  identity.tail_checksum = LoadAt<uint64_t>(at + kTailChecksumAt);
  if (IsEncrypted(VersionOf(page))) {
    header.encryption = DecodeEncryption(at, identity.shape);
    if (header.encryption->key_id.is_zero()) {
      return absl::DataLossError("image header: encrypted, but without the id of a key");
    }
  }
  identity.piece_checksums.resize(identity.shape.pieces());
  std::memcpy(identity.piece_checksums.data(), at + kPiecesAt,
              identity.piece_checksums.size() * sizeof(uint64_t));
  header.placement = std::move(claim.placement);
  return header;
}

}  // namespace kvkeep
