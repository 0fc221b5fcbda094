#include "tiers/crypt/image_cipher.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/checksum.h"
#include "tiers/crypt/key_ring.h"

namespace kvkeep {
namespace {

using Direction = AesGcm::Direction;

struct Image {
  SeededRandom random{5};
  std::unique_ptr<KeyRing> ring = KeyRing::InMemory({"", "b"}, &random);
  const DataKey& key = *ring->ForTenant("");
  ImageHeader header;

  explicit Image(uint32_t payload_bytes = 3 * kPieceBytes + 5, uint32_t tail_bytes = 100) {
    header.identity.id = {random.Next<NamespaceDigest>(), random.Next<ChunkKey>(), PartId(3)};
    header.identity.shape = {payload_bytes, tail_bytes};
    header.identity.created_unix_us = 1'700'000'000'000'000;
    header.identity.tail_checksum = random.NextU64();
    for (size_t i = 0; i < header.identity.shape.pieces(); ++i) {
      header.identity.piece_checksums.push_back(random.NextU64());
    }
    header.encryption = ImageCipher::NewEncryption(key, header.identity.shape, &random);
  }
  ImageCipher Cipher() const { return ImageCipher(key, header.identity, *header.encryption); }
};

std::vector<std::byte> Some(size_t bytes) {
  std::vector<std::byte> some(bytes);
  SeededRandom(9).Fill(some);
  return some;
}

// Encrypts the bytes of a unit, in place.
CipherTag Encrypt(const ImageCipher& cipher, size_t unit, std::vector<std::byte>& bytes) {
  AesGcm message = cipher.Unit(Direction::kEncrypt, unit);
  message.Append(bytes, bytes.data());
  return message.Tag();
}

bool Decrypt(const ImageCipher& cipher, size_t unit, std::vector<std::byte>& bytes,
             const CipherTag& tag) {
  AesGcm message = cipher.Unit(Direction::kDecrypt, unit);
  message.Append(bytes, bytes.data());
  return message.Matches(tag);
}

}  // namespace

TEST_CASE("units cover all that follows the header page, once, in at most 64") {
  const uint32_t mib = GENERATE(1u, 2u, 63u, 64u, 65u, 127u, 128u, 129u, 192u, 193u, 255u, 256u);
  const uint32_t less = GENERATE(0u, 1u, 4096u, (1u << 20) - 1);
  const ImageShape shape{(mib << 20) - less, GENERATE(0u, 1u, 16384u)};
  CAPTURE(mib, less, shape.tail_bytes);
  REQUIRE(shape.units() >= 1);
  REQUIRE(shape.units() <= kMaxCipherUnits);
  uint64_t at = kHeaderBytes;
  for (size_t unit = 0; unit < shape.units(); ++unit) {
    REQUIRE(shape.unit_begin(unit) == at);
    REQUIRE(shape.unit_end(unit) > at);
    at = shape.unit_end(unit);
  }
  CHECK(at == shape.blocks().value() * kBlockBytes);
  CHECK(shape.unit_pieces() == (mib <= 64 ? 1 : mib <= 128 ? 2 : mib <= 192 ? 3 : 4));
}

TEST_CASE("a unit comes back under the image's key, and in no other way") {
  Image image;
  const std::vector<std::byte> plain = Some(70'001);
  std::vector<std::byte> bytes = plain;
  const CipherTag tag = Encrypt(image.Cipher(), 1, bytes);
  CHECK(bytes != plain);
  size_t unit = 1;
  CipherTag shown = tag;
  bool right = false;
  const DataKey* key = &image.key;
  SECTION("right") { right = true; }
  SECTION("as another unit") { unit = 2; }
  SECTION("a flipped bit") { bytes[70'000] ^= std::byte{128}; }
  SECTION("another tag") { shown[0] ^= std::byte{1}; }
  SECTION("as another chunk") { image.header.identity.id.key.bytes[31] ^= 1; }
  SECTION("in another namespace") { image.header.identity.id.ns.bytes[0] ^= 1; }
  SECTION("as another part") { image.header.identity.id.part = PartId(4); }
  SECTION("of another size") { ++image.header.identity.shape.payload_bytes; }
  SECTION("with another tail") { ++image.header.identity.shape.tail_bytes; }
  SECTION("of another time") { ++image.header.identity.created_unix_us; }
  SECTION("under another nonce") { image.header.encryption->nonce.bytes[15] ^= 1; }
  SECTION("under another tenant's key") {
    key = image.ring->ForTenant("b");
    image.header.encryption->key_id = key->id;
  }
  const ImageCipher cipher(*key, image.header.identity, *image.header.encryption);
  CHECK(Decrypt(cipher, unit, bytes, shown) == right);
  CHECK((bytes == plain) == (right || shown != tag));
}

TEST_CASE("the checksums in a header come back, and only whole") {
  Image image;
  const ImageHeader plain = image.header;
  const ImageCipher cipher = image.Cipher();
  cipher.EncryptChecksums(&image.header);
  CHECK(image.header.identity.tail_checksum != plain.identity.tail_checksum);
  for (size_t i = 0; i < plain.identity.piece_checksums.size(); ++i) {
    CHECK(image.header.identity.piece_checksums[i] != plain.identity.piece_checksums[i]);
  }
  SECTION("as they were") {
    REQUIRE(cipher.DecryptChecksums(&image.header).ok());
    CHECK(image.header.identity.piece_checksums == plain.identity.piece_checksums);
    CHECK(image.header.identity.tail_checksum == plain.identity.tail_checksum);
  }
  SECTION("one bit of a piece's") {
    image.header.identity.piece_checksums.back() ^= 1;
    CHECK(absl::IsDataLoss(cipher.DecryptChecksums(&image.header)));
  }
  SECTION("one bit of the tail's") {
    image.header.identity.tail_checksum ^= 1;
    CHECK(absl::IsDataLoss(cipher.DecryptChecksums(&image.header)));
  }
  SECTION("one bit of their tag") {
    image.header.encryption->checksums_tag[3] ^= std::byte{4};
    CHECK(absl::IsDataLoss(cipher.DecryptChecksums(&image.header)));
  }
}

TEST_CASE(
    "the same bytes never make the same ciphertext: not in two units, not in two write-backs") {
  // Zeros encrypt to the key stream itself, so equal runs of it would reveal a nonce used twice.
  Image image(5 * kPieceBytes, 0);
  std::set<std::vector<std::byte>> streams;
  std::set<std::array<uint8_t, 16>> nonces;
  constexpr size_t kWriteBacks = 200;
  for (size_t i = 0; i < kWriteBacks; ++i) {
    image.header.encryption =
        ImageCipher::NewEncryption(image.key, image.header.identity.shape, &image.random);
    nonces.insert(image.header.encryption->nonce.bytes);
    const ImageCipher cipher = image.Cipher();
    for (size_t unit = 0; unit < image.header.identity.shape.units(); ++unit) {
      std::vector<std::byte> zeros(64);
      Encrypt(cipher, unit, zeros);
      for (size_t at = 0; at < zeros.size(); at += 16) {
        streams.emplace(zeros.begin() + static_cast<ptrdiff_t>(at),
                        zeros.begin() + static_cast<ptrdiff_t>(at) + 16);
      }
    }
  }
  CHECK(nonces.size() == kWriteBacks);
  CHECK(streams.size() == kWriteBacks * 5 * 4);
}

}  // namespace kvkeep
