// ImageCipher: encrypts and decrypts one image (tiers/base/image.h, format version 4), unit by
// unit.
//
// Each image has a key of its own: HMAC-SHA256 under the tenant's data key over the image's name:
// key id, a random nonce of 128 bits, namespace digest, key, part, sizes and creation time. Under
// that key each unit is one AES-256-GCM message whose IV is the unit's number, so that an IV comes
// twice only if two images of one chunk drew the same nonce. A nonce is drawn for every write-back.
// The associated data of a message are that name and the unit's number again: a unit is accepted
// only at its place in the image it was made for.
//
// The checksums in the header are one more message, as checksums of plaintext would confirm a
// guess. The fields that recovery and fsck need stay readable, covered by root and MAC as in any
// image.
//
// Thread-safe once made: units may be worked on at the same time.
#pragma once

#include <absl/status/status.h>

#include <array>

#include "tiers/base/image.h"
#include "tiers/base/random.h"
#include "tiers/crypt/aes_gcm.h"
#include "tiers/crypt/secret.h"

namespace kvkeep {

// A tenant's key, under which its images' keys are made.
struct DataKey {
  KeyId id;
  Secret secret;
};

class ImageCipher {
 public:
  // Returns the key id and a new nonce for a header that is yet to be encrypted; its tags are still
  // to come.
  static ImageEncryption NewEncryption(const DataKey& key, const ImageShape& shape,
                                       RandomSource* random);

  // REQUIRES: encryption.key_id == key.id.
  ImageCipher(const DataKey& key, const ImageIdentity& identity, const ImageEncryption& encryption);

  // Returns the message of the unit: the image's bytes [shape.unit_begin, shape.unit_end).
  AesGcm Unit(AesGcm::Direction direction, size_t unit) const;

  // Encrypts or decrypts the checksums of `header` in place, with their tag. Decrypting is DataLoss
  // when the header was changed, or encrypted with another key; the checksums are then worthless.
  void EncryptChecksums(ImageHeader* header) const;
  absl::Status DecryptChecksums(ImageHeader* header) const;

 private:
  static constexpr size_t kNameBytes = 16 + 16 + 16 + 16 + 32 + 4 + 4 + 4 + 8;

  AesGcm Message(AesGcm::Direction direction, uint32_t number) const;

  std::array<std::byte, kNameBytes> name_;
  Secret key_;
};

}  // namespace kvkeep
