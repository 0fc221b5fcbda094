// ImageVerifier: checks the bytes of images in G2, and decrypts those that are encrypted first.
//
// Pieces are decrypted where they are, in the arena. This is safe, since nobody was told that they
// are ready, and the arena's own header is not written yet. Unauthenticated means that a tag does
// not match: the bytes were changed, or the key is another one. Memory that cannot be read matches
// no checksum.
//
// Holds no state: any thread may call it, without the store's lock.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "tiers/crypt/image_cipher.h"
#include "tiers/crypt/key_ring.h"
#include "tiers/host/arena.h"
#include "tiers/store/promotion.h"

namespace kvkeep::store_internal {

class ImageVerifier {
 public:
  // Takes the keys of images on devices and of images beyond the node. Null: there are none. All
  // are borrowed.
  ImageVerifier(Arena* arena, const KeyRing* keys, const KeyRing* remote_keys)
      : arena_(*arena), keys_(keys), remote_keys_(remote_keys) {}

  // Returns the key; null: it is in neither ring.
  const DataKey* KeyOf(const ImageEncryption& encryption) const;
  // Decrypts the header's checksums. NotFound: its key is missing. Unauthenticated: its tag does
  // not match.
  absl::StatusOr<std::unique_ptr<ImageCipher>> OpenHeader(ImageHeader* header) const;
  // Verifies the pieces. If the image is encrypted, they are the pieces of one unit, and are
  // decrypted first. DataLoss: a checksum does not match.
  absl::Status Verify(const Promotion& promotion, Promotion::Pieces pieces) const;

 private:
  absl::Status DecryptUnit(const ImageCipher& cipher, const ImageHeader& header,
                           const ExtentList& extents, size_t unit) const;
  absl::Status VerifyPiece(const ImageIdentity& identity, const ExtentList& extents,
                           size_t piece) const;
  bool HasChecksum(const ExtentList& extents, uint64_t at, uint64_t bytes, uint64_t wanted) const;

  Arena& arena_;
  const KeyRing* const keys_;
  const KeyRing* const remote_keys_;
};

}  // namespace kvkeep::store_internal
