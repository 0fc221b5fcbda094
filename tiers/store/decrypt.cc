// Encrypted images of G3 (tiers/crypt): which key opens one, and a promotion's bytes decrypted.
//
// Pieces are decrypted where they are, in the arena: nobody was told that they are ready, and the
// arena's own header is not written yet. A status of Unauthenticated means a tag that does not
// match: changed bytes, or another key.
#include <absl/strings/str_cat.h>

#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

const DataKey* Core::KeyOf(const ImageEncryption& encryption) const {
  for (const KeyRing* const ring : {deps_.keys, deps_.remote_keys}) {
    const DataKey* const key = ring == nullptr ? nullptr : ring->Find(encryption.key_id);
    if (key != nullptr) return key;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<ImageCipher>> Core::OpenHeader(ImageHeader* header) const {
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

absl::Status Core::DecryptUnit(const ImageCipher& cipher, const ImageHeader& header,
                               const ExtentList& extents, size_t unit) const {
  const ImageShape& shape = header.identity.shape;
  AesGcm message = cipher.Unit(AesGcm::Direction::kDecrypt, unit);
  const uint64_t end = shape.unit_end(unit);
  for (uint64_t at = shape.unit_begin(unit); at < end;) {
    const std::span<std::byte> run = chunks_.ImageMemory(extents, at, end - at);
    message.Append(run, run.data());
    at += run.size();
  }
  if (message.Matches(header.encryption->unit_tags[unit])) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat("unit ", unit, " does not match its tag"));
}

absl::Status Core::VerifyPieces(const Promotion& promotion, Promotion::Pieces pieces) const {
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

void Core::CountFailure(const Promotion::Failure& failure) {
  if (failure.unauthentic) ++counters_.unauthentic_chunks;
  if (failure.keyless) {
    ++counters_.keyless_chunks;
  } else if (!failure.io && !IsAway(failure.status)) {
    ++counters_.corrupt_chunks;
  }
}

}  // namespace kvkeep::store_internal
