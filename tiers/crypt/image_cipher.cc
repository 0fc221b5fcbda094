#include "tiers/crypt/image_cipher.h"


#include <cstring>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/hmac.h"

namespace kvkeep {
namespace {

constexpr char kImageLabel[17] = "kvkeep image v2\0";
constexpr uint32_t kChecksumsMessage = 0xffffffff;  // no unit has that number

std::span<std::byte> BytesOf(uint64_t& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace

ImageEncryption ImageCipher::NewEncryption(const DataKey& key, const ImageShape& shape,
                                           RandomSource* random) {
  ImageEncryption encryption{.key_id = key.id, .nonce = random->Next<ImageNonce>()};
  encryption.unit_tags.resize(shape.units());
  return encryption;
}

ImageCipher::ImageCipher(const DataKey& key, const ImageIdentity& identity,
                         const ImageEncryption& encryption) {
  KVKEEP_CHECK(encryption.key_id == key.id);
  KVKEEP_CHECK(encryption.unit_tags.size() == identity.shape.units());
  std::byte* at = name_.data();
  const auto add = [&at](const void* from, size_t bytes) {
    std::memcpy(at, from, bytes);
    at += bytes;
  };
  add(kImageLabel, 16);
  add(encryption.key_id.bytes.data(), KeyId::kSize);
  add(encryption.nonce.bytes.data(), ImageNonce::kSize);
  add(identity.id.ns.bytes.data(), NamespaceDigest::kSize);
  add(identity.id.key.bytes.data(), ChunkKey::kSize);
  const uint32_t part = identity.id.part.value();
  add(&part, sizeof(part));
  add(&identity.shape.payload_bytes, sizeof(identity.shape.payload_bytes));
  add(&identity.shape.tail_bytes, sizeof(identity.shape.tail_bytes));
  add(&identity.created_unix_us, sizeof(identity.created_unix_us));
  KVKEEP_CHECK(at == name_.data() + name_.size());

  HmacSha256(key.secret.bytes(), name_, key_.writable());
}

AesGcm ImageCipher::Message(AesGcm::Direction direction, uint32_t number) const {
  GcmIv iv{};
  StoreAt<uint32_t>(iv.data(), number);
  std::array<std::byte, kNameBytes + sizeof(number)> associated;
  std::memcpy(associated.data(), name_.data(), name_.size());
  StoreAt<uint32_t>(associated.data() + name_.size(), number);
  return AesGcm(direction, key_, iv, associated);
}

AesGcm ImageCipher::Unit(AesGcm::Direction direction, size_t unit) const {
  KVKEEP_CHECK(unit < kMaxCipherUnits);
  return Message(direction, static_cast<uint32_t>(unit));
}

void ImageCipher::EncryptChecksums(ImageHeader* header) const {
  KVKEEP_CHECK(header->encryption.has_value());
  KVKEEP_CHECK(header->identity.piece_checksums.size() == header->identity.shape.pieces());
  AesGcm message = Message(AesGcm::Direction::kEncrypt, kChecksumsMessage);
  const auto apply = [&message](std::span<std::byte> bytes) {
    message.Append(bytes, bytes.data());
  };
  apply(BytesOf(header->identity.tail_checksum));
  apply(std::as_writable_bytes(std::span(header->identity.piece_checksums)));
  header->encryption->checksums_tag = message.Tag();
}

absl::Status ImageCipher::DecryptChecksums(ImageHeader* header) const {
  KVKEEP_CHECK(header->encryption.has_value());
  AesGcm message = Message(AesGcm::Direction::kDecrypt, kChecksumsMessage);
  const auto apply = [&message](std::span<std::byte> bytes) {
    message.Append(bytes, bytes.data());
  };
  apply(BytesOf(header->identity.tail_checksum));
  apply(std::as_writable_bytes(std::span(header->identity.piece_checksums)));
  if (message.Matches(header->encryption->checksums_tag)) return absl::OkStatus();
  return absl::DataLossError("image header: the checksums do not match their tag");
}

}  // namespace kvkeep
