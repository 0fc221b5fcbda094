// EncryptedImage: one image encrypted as a whole, in buffers of its own, one for each unit. It is
// for a tier that sends the header page, which has the tags, before all other bytes.
//
// The bytes in G2 stay as they are, since readers hold leases on them. It is constant once made,
// hence thread-safe. Its buffers count with those of write-backs.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tiers/base/image.h"
#include "tiers/base/random.h"
#include "tiers/crypt/image_cipher.h"
#include "tiers/store/aligned_page.h"
#include "tiers/store/cipher_buffers.h"

namespace kvkeep::store_internal {

// Returns the bytes of an image from `offset`, as far as they are contiguous, at most `bytes`.
using ImageRuns = std::function<std::span<const std::byte>(uint64_t offset, uint64_t bytes)>;

// Encrypts one unit of `source` into `to`, and writes its tag into the header.
void EncryptUnit(const ImageCipher& cipher, const ImageRuns& source, size_t unit, std::byte* to,
                 ImageHeader* header);

class EncryptedImage {
 public:
  // `header`: of plaintext, with its placement. Unavailable: no memory for it.
  static absl::StatusOr<std::shared_ptr<const EncryptedImage>> Make(
      ImageHeader header, const DataKey& key, const ImageRuns& source, const MacKey& mac_key,
      CipherBuffers& buffers, RandomSource* random);

  ConstHeaderPage header() const { return ConstHeaderPage(page_.bytes, kHeaderBytes); }
  // Returns the bytes behind the header page, from `offset` to the end of its unit, at most
  // `bytes`.
  std::span<std::byte> Run(uint64_t offset, uint64_t bytes) const;

 private:
  explicit EncryptedImage(const ImageShape& shape) : shape_(shape) {}

  const ImageShape shape_;
  AlignedPage page_;
  std::vector<CipherBuffers::Buffer> units_;
};

}  // namespace kvkeep::store_internal
