#include "tiers/crypt/aes_gcm.h"

#include <absl/strings/escaping.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

using Direction = AesGcm::Direction;

// Test case 16 of the GCM specification (McGrew and Viega), which NIST's vectors repeat.
struct Vector {
  std::string key =
      absl::HexStringToBytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  std::string iv = absl::HexStringToBytes("cafebabefacedbaddecaf888");
  std::string aad = absl::HexStringToBytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  std::string plain = absl::HexStringToBytes(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6"
      "b525b16aedf5aa0de657ba637b39");
  std::string cipher = absl::HexStringToBytes(
      "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b105682"
      "8838c5f61e6393ba7a0abcc9f662");
  std::string tag = absl::HexStringToBytes("76fc6ece0f4e1768cddf8853bb2d551b");

  AesGcm Begin(Direction direction) const {
    return AesGcm(direction, Secret(AsBytes(key).first<Secret::kBytes>()),
                  LoadAt<GcmIv>(AsBytes(iv).data()), AsBytes(aad));
  }
  CipherTag WantedTag() const { return LoadAt<CipherTag>(AsBytes(tag).data()); }
};

std::byte* At(std::string& text) { return reinterpret_cast<std::byte*>(text.data()); }

}  // namespace

TEST_CASE("the published vector comes out, whole and in runs, and back in place") {
  const Vector vector;
  const size_t run = GENERATE(1u, 7u, 16u, 60u);
  std::string out(vector.plain.size(), '\0');
  AesGcm encrypt = vector.Begin(Direction::kEncrypt);
  for (size_t at = 0; at < out.size(); at += run) {
    const size_t bytes = std::min(run, out.size() - at);
    encrypt.Append(AsBytes(vector.plain).subspan(at, bytes), At(out) + at);
  }
  CHECK(out == vector.cipher);
  CHECK(encrypt.Tag() == vector.WantedTag());

  AesGcm decrypt = vector.Begin(Direction::kDecrypt);
  decrypt.Append(AsBytes(out), At(out));
  CHECK(out == vector.plain);
  CHECK(decrypt.Matches(vector.WantedTag()));
}

TEST_CASE("another key, IV, associated data, tag or byte does not match") {
  Vector vector;
  CipherTag tag = vector.WantedTag();
  std::string message = vector.cipher;
  SECTION("key") { vector.key[31] ^= 1; }
  SECTION("IV") { vector.iv[0] ^= 1; }
  SECTION("associated data") { vector.aad[19] ^= 1; }
  SECTION("associated data that is longer") { vector.aad += '\0'; }
  SECTION("tag") { tag[15] ^= std::byte{1}; }
  SECTION("a byte of the message") { message[59] ^= 1; }
  SECTION("a message cut short") { message.pop_back(); }
  AesGcm decrypt = vector.Begin(Direction::kDecrypt);
  decrypt.Append(AsBytes(message), At(message));
  CHECK_FALSE(decrypt.Matches(tag));
}

TEST_CASE("a moved secret leaves nothing behind") {
  SeededRandom random(1);
  Secret secret;
  random.Fill(secret.writable());
  const Secret kept(std::move(secret));
  const std::byte zero[Secret::kBytes] = {};
  CHECK(std::memcmp(secret.data(), zero, sizeof(zero)) == 0);  // NOLINT: that is the point
  CHECK(std::memcmp(kept.data(), zero, sizeof(zero)) != 0);
}

}  // namespace kvkeep
