// Decrypts what follows the header page of an encrypted image as it comes, and checks its tags.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/image.h"
#include "tiers/crypt/image_cipher.h"

namespace kvkeep::fsck_internal {

// Not thread-safe; cipher and header outlive it.
class EncryptedCheck {
 public:
  EncryptedCheck(const ImageCipher& cipher, const ImageHeader& header)
      : cipher_(cipher), shape_(header.identity.shape), tags_(header.encryption->unit_tags) {
    KVKEEP_CHECK(tags_.size() == shape_.units());
  }

  // Decrypts the next bytes in place, in runs of any size.
  void Decrypt(std::span<std::byte> bytes);
  // Returns the units that do not match their tag. Call it after the last byte.
  const std::vector<size_t>& bad_units() const { return bad_units_; }

 private:
  const ImageCipher& cipher_;
  const ImageShape shape_;
  const std::vector<CipherTag>& tags_;
  uint64_t at_ = kHeaderBytes;  // in the image
  size_t unit_ = 0;
  std::optional<AesGcm> message_;  // of the unit
  std::vector<size_t> bad_units_;
};

}  // namespace kvkeep::fsck_internal
