#include "tiers/store/image_verifier.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <vector>

#include "tiers/base/canary.h"
#include "tiers/base/memory_errors.h"
#include "tiers/store/arena_image.h"

namespace kvkeep::store_internal {

const DataKey* ImageVerifier::KeyOf(const ImageEncryption& encryption) const {
  for (const KeyRing* const ring : {keys_, remote_keys_}) {
    const DataKey* const key = ring == nullptr ? nullptr : ring->Find(encryption.key_id);
    if (key != nullptr) return key;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<ImageCipher>> ImageVerifier::OpenHeader(ImageHeader* header) const {
  const DataKey* key = KeyOf(*header->encryption);
  if (key == nullptr) {
    return absl::NotFoundError(absl::StrCat("the image is encrypted with key ",
                                            header->encryption->key_id.ToHex(),
                                            ", which is not in the key ring"));
  }
  auto cipher = std::make_unique<ImageCipher>(*key, header->identity, *header->encryption);
  const absl::Status opened = cipher->DecryptChecksums(header);
  if (!opened.ok()) return absl::UnauthenticatedError(opened.message());
  return cipher;
}

absl::Status ImageVerifier::Verify(const Promotion& promotion, Promotion::Pieces pieces) const {
  const ImageHeader& header = *promotion.header();
  if (promotion.cipher() != nullptr) {
    absl::Status status = DecryptUnit(*promotion.cipher(), header, promotion.to(),
                                      pieces.first / header.identity.shape.unit_pieces());
    if (!status.ok()) return status;
  }
  for (size_t piece = pieces.first; piece < pieces.end; ++piece) {
    absl::Status status = VerifyPiece(header.identity, promotion.to(), piece);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ImageVerifier::DecryptUnit(const ImageCipher& cipher, const ImageHeader& header,
                               const ExtentList& extents, size_t unit) const {
  const ImageShape& shape = header.identity.shape;
  AesGcm message = cipher.Unit(AesGcm::Direction::kDecrypt, unit);
  const uint64_t end = shape.unit_end(unit);
  for (uint64_t at = shape.unit_begin(unit); at < end;) {
    const std::span<std::byte> run = ArenaImage::Run(arena_, extents, at, end - at);
    message.Append(run, run.data());
    at += run.size();
  }
  if (message.Matches(header.encryption->unit_tags[unit])) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat("unit ", unit, " does not match its tag"));
}

absl::Status ImageVerifier::VerifyPiece(const ImageIdentity& identity, const ExtentList& extents,
                                        size_t piece) const {
  const ImageShape& shape = identity.shape;
  const uint64_t at = shape.piece_begin(piece);
  if (!Planted(Canary::kChecksumSkipped) &&
      !HasChecksum(extents, at, PieceSize(shape.payload_bytes, piece),
                   identity.piece_checksums[piece])) {
    return absl::DataLossError(absl::StrCat("piece ", piece, " does not match its checksum"));
  }
  const bool last = piece + 1 == shape.pieces();
  if (last && shape.tail_bytes > 0 &&
      !HasChecksum(extents, shape.tail_offset(), shape.tail_bytes, identity.tail_checksum)) {
    return absl::DataLossError("the metadata tail does not match its checksum");
  }
  return absl::OkStatus();
}

bool ImageVerifier::HasChecksum(const ExtentList& extents, uint64_t at, uint64_t bytes,
                                uint64_t wanted) const {
  const std::span<std::byte> run = ArenaImage::Run(arena_, extents, at, bytes);
  if (run.size() == bytes) return GuardedXxh3(run) == wanted;
  std::vector<std::byte> gathered(bytes);  // the tail is split over extents, which is rare
  for (uint64_t done = 0; done < bytes;) {
    const auto part = ArenaImage::Run(arena_, extents, at + done, bytes - done);
    if (!GuardedCopy(gathered.data() + done, part)) return false;
    done += part.size();
  }
  return Xxh3(gathered) == wanted;
}

}  // namespace kvkeep::store_internal
