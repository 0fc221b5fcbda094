// ImageVerifier: checks the bytes of images in G2, and decrypts those that are encrypted first.
//
// Pieces are decrypted where they are, in the arena: nobody was told that they are ready, and the
// arena's own header is not written yet. A status of Unauthenticated means a tag that does not
// match: changed bytes, or another key. Memory that cannot be read matches no checksum.
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
  // Keys of what lies on devices, and of what lies beyond the node. Null: there are none. All are
  // borrowed.
  ImageVerifier(Arena* arena, const KeyRing* keys, const KeyRing* remote_keys)
      : arena_(*arena), keys_(keys), remote_keys_(remote_keys) {}

  // Null: the key is in neither ring.
  const DataKey* KeyOf(const ImageEncryption& encryption) const;
  // Decrypts the header's checksums. NotFound: its key is missing. Unauthenticated: its tag does
  // not match.
  absl::StatusOr<std::unique_ptr<ImageCipher>> OpenHeader(ImageHeader* header) const;
  // Verifies those pieces. The pieces of an encrypted image are those of one unit, and are
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
