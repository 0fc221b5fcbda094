#include "tiers/store/encrypted_image.h"

#include <algorithm>
#include <utility>

namespace kvkeep::store_internal {

void EncryptUnit(const ImageCipher& cipher, const ImageRuns& source, size_t unit, std::byte* to,
                 ImageHeader* header) {
  const ImageShape& shape = header->identity.shape;
  AesGcm message = cipher.Unit(AesGcm::Direction::kEncrypt, unit);
  const uint64_t end = shape.unit_end(unit);
  for (uint64_t at = shape.unit_begin(unit); at < end;) {
    const std::span<const std::byte> from = source(at, end - at);
    message.Append(from, to);
    to += from.size();
    at += from.size();
  }
  header->encryption->unit_tags[unit] = message.Tag();
}

absl::StatusOr<std::shared_ptr<const EncryptedImage>> EncryptedImage::Make(
    ImageHeader header, const DataKey& key, const ImageRuns& source, const MacKey& mac_key,
    CipherBuffers& buffers, RandomSource* random) {
  const ImageShape& shape = header.identity.shape;
  const std::shared_ptr<EncryptedImage> image(new EncryptedImage(shape));
  if (!image->page_.ok()) return AlignedPage::NoMemory();
  header.encryption = ImageCipher::NewEncryption(key, shape, random);
  const ImageCipher cipher(key, header.identity, *header.encryption);
  for (size_t unit = 0; unit < shape.units(); ++unit) {
    image->units_.push_back(buffers.Take(shape.unit_end(unit) - shape.unit_begin(unit)));
    std::byte* const to = image->units_.back().data();
    if (to == nullptr) return AlignedPage::NoMemory();
    EncryptUnit(cipher, source, unit, to, &header);
  }
  cipher.EncryptChecksums(&header);
  EncodeHeader(header, mac_key, image->page_.span());
  return image;
}

std::span<std::byte> EncryptedImage::Run(uint64_t offset, uint64_t bytes) const {
  const size_t unit = shape_.unit_at(offset);
  return {units_[unit].data() + (offset - shape_.unit_begin(unit)),
          std::min(bytes, shape_.unit_end(unit) - offset)};
}

}  // namespace kvkeep::store_internal
