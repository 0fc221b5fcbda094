#include "tiers/base/image.h"

#include <openssl/hmac.h>

#include <catch2/catch.hpp>
#include <limits>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

struct ImageFixture {
  SeededRandom random{7};
  MacKey mac_key = [this] {
    MacKey key;
    random.Fill(key);
    return key;
  }();

  ImageHeader Header(uint32_t payload_bytes, uint32_t tail_bytes = 0, size_t extents = 1) {
    ImageHeader header;
    header.identity.id = {random.Next<NamespaceDigest>(), random.Next<ChunkKey>(), PartId(3)};
    header.identity.shape = {payload_bytes, tail_bytes};
    header.identity.created_unix_us = 1'700'000'000'000'000;
    header.identity.tail_checksum = random.NextU64();
    for (size_t i = 0; i < header.identity.shape.pieces(); ++i) {
      header.identity.piece_checksums.push_back(random.NextU64());
    }
    header.placement.tier = Tier::kG3;
    header.placement.place = random.Next<Uuid>();
    header.placement.incarnation = Incarnation(random.NextU64());
    header.placement.generation = Generation(42);
    uint64_t left = header.identity.shape.blocks().value();
    for (size_t i = 0; i < extents; ++i) {
      const uint64_t take = i + 1 == extents ? left : 1;
      header.placement.extents.push_back({BlockNumber(1000 * i), BlockCount(take)});
      left -= take;
    }
    return header;
  }
};

std::array<std::byte, kHeaderBytes> Encode(const ImageHeader& header, const MacKey& key) {
  std::array<std::byte, kHeaderBytes> page;
  EncodeHeader(header, key, page);
  return page;
}

}  // namespace

TEST_CASE_METHOD(ImageFixture, "a header read back is the header written") {
  const uint32_t payload = GENERATE(1u, 4096u, 4097u, 1u << 20, (1u << 20) + 1, 256u << 20);
  const uint32_t tail = GENERATE(0u, 1u, 16384u);
  const ImageHeader written = Header(payload, tail);
  const auto page = Encode(written, mac_key);
  const absl::StatusOr<ImageHeader> read = DecodeHeader(page, mac_key);
  REQUIRE(read.ok());
  CHECK(read->identity.id == written.identity.id);
  CHECK(read->identity.shape == written.identity.shape);
  CHECK(read->identity.piece_checksums == written.identity.piece_checksums);
  CHECK(read->identity.tail_checksum == written.identity.tail_checksum);
  CHECK(read->identity.created_unix_us == written.identity.created_unix_us);
  CHECK(read->placement == written.placement);
}

TEST_CASE_METHOD(ImageFixture, "a header holds 32 extents") {
  const ImageHeader written = Header(1 << 20, 0, kMaxExtents);
  const auto page = Encode(written, mac_key);
  const absl::StatusOr<ImageHeader> read = DecodeHeader(page, mac_key);
  REQUIRE(read.ok());
  CHECK(read->placement.extents == written.placement.extents);
}

TEST_CASE_METHOD(ImageFixture, "a flipped bit anywhere in the meaningful header is found") {
  const auto page = Encode(Header(3 << 20, 100), mac_key);
  for (size_t byte = 0; byte < 2784; ++byte) {
    auto damaged = page;
    damaged[byte] ^= std::byte{1} << static_cast<int>(byte % 8);
    CAPTURE(byte);
    REQUIRE_FALSE(DecodeHeader(damaged, mac_key).ok());
  }
}

TEST_CASE_METHOD(ImageFixture, "a header made with another secret is refused") {
  const auto page = Encode(Header(4096), mac_key);
  MacKey other = mac_key;
  other[0] ^= std::byte{1};
  CHECK(DecodeHeader(page, other).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE_METHOD(ImageFixture,
                 "the header of an encrypted image is of version 2 and keeps its tags") {
  const uint32_t payload = GENERATE(1u, 64u << 20, 256u << 20);
  ImageHeader written = Header(payload, 100);
  ImageEncryption& encryption = written.encryption.emplace();
  encryption.key_id = random.Next<KeyId>();
  encryption.nonce = random.Next<ImageNonce>();
  random.Fill(encryption.checksums_tag);
  encryption.unit_tags.resize(written.identity.shape.units());
  for (CipherTag& tag : encryption.unit_tags) random.Fill(tag);
  auto page = Encode(written, mac_key);
  CHECK(page[8] == std::byte{2});
  const absl::StatusOr<ImageHeader> read = DecodeHeader(page, mac_key);
  REQUIRE(read.ok());
  CHECK(read->encryption == written.encryption);
  CHECK(read->identity.piece_checksums == written.identity.piece_checksums);
  CHECK(read->placement == written.placement);
  // Key id and nonce are part of what the root covers.
  page[GENERATE(96u, 127u)] ^= std::byte{1};
  CHECK_FALSE(DecodeHeader(page, mac_key).ok());
}

TEST_CASE_METHOD(ImageFixture, "a plain header is what version 1 always was") {
  const auto page = Encode(Header(3 << 20, 100), mac_key);
  CHECK(page[8] == std::byte{1});
  for (size_t at = 96; at < 128; ++at) REQUIRE(page[at] == std::byte{0});
  for (size_t at = 2784; at < kHeaderBytes; ++at) REQUIRE(page[at] == std::byte{0});
  CHECK_FALSE(DecodeHeader(page, mac_key)->encryption.has_value());
}

TEST_CASE_METHOD(ImageFixture, "another format version is refused by name, not guessed at") {
  auto page = Encode(Header(4096), mac_key);
  page[8] = std::byte{3};
  CHECK(DecodeHeader(page, mac_key).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE_METHOD(ImageFixture, "extents that cannot be are refused even with a right MAC") {
  ImageHeader header = Header(4096);  // two blocks
  const auto decoded = [&](const ExtentList& extents) {
    header.placement.extents = extents;
    return DecodeHeader(Encode(header, mac_key), mac_key).status().code();
  };
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const auto extent = [](uint64_t first, uint64_t count) {
    return Extent{BlockNumber(first), BlockCount(count)};
  };
  CHECK(decoded({extent(7, 1), extent(5, 1)}) == absl::StatusCode::kOk);
  // A sum that wraps around to the right one; one block twice; none; an end beyond all numbers.
  CHECK(decoded({extent(0, kMost), extent(5, 3)}) == absl::StatusCode::kDataLoss);
  CHECK(decoded({extent(5, 1), extent(5, 1)}) == absl::StatusCode::kDataLoss);
  CHECK(decoded({extent(5, 2), extent(9, 0)}) == absl::StatusCode::kDataLoss);
  CHECK(decoded({extent(kMost, 2)}) == absl::StatusCode::kDataLoss);
}

TEST_CASE("the tail lies behind the payload, 64-byte aligned, and fills the payload's last block") {
  CHECK(ImageShape{1, 0}.blocks() == BlockCount(2));
  CHECK(ImageShape{4096, 0}.blocks() == BlockCount(2));
  CHECK(ImageShape{4097, 0}.blocks() == BlockCount(3));
  CHECK(ImageShape{1, 100}.blocks() == BlockCount(2));
  CHECK(ImageShape{1, 100}.tail_offset() == 4096 + 64);
  CHECK(ImageShape{4096, 1}.blocks() == BlockCount(3));
}

TEST_CASE("sizes outside the limits are refused with the limit named") {
  CHECK(ValidateShape({1, 0}).ok());
  CHECK(ValidateShape({256u << 20, 16384}).ok());
  CHECK_THAT(std::string(ValidateShape({0, 0}).message()), Catch::Contains("1 to 268435456"));
  CHECK_THAT(std::string(ValidateShape({257u << 20, 0}).message()), Catch::Contains("268435456"));
  CHECK_THAT(std::string(ValidateShape({1, 16385}).message()), Catch::Contains("16384"));
}

TEST_CASE_METHOD(ImageFixture,
                 "an encrypted image that names no key is refused, with a right MAC") {
  ImageHeader header = Header(4096);
  ImageEncryption& encryption = header.encryption.emplace();
  encryption.key_id = random.Next<KeyId>();
  encryption.unit_tags.resize(header.identity.shape.units());
  auto page = Encode(header, mac_key);
  // The key's id becomes zeros; root and MAC, where image.cc has them, are made anew.
  constexpr size_t kKeyIdAt = 96, kRootAt = 2176, kMacAt = 2752;
  std::fill_n(page.begin() + kKeyIdAt, KeyId::kSize, std::byte{0});
  StoreAt<Digest128>(page.data() + kRootAt, Xxh3_128(std::span(page).first(kRootAt)));
  unsigned int size = 0;
  REQUIRE(HMAC(EVP_sha256(), mac_key.data(), static_cast<int>(mac_key.size()),
               reinterpret_cast<const unsigned char*>(page.data() + kRootAt), kMacAt - kRootAt,
               reinterpret_cast<unsigned char*>(page.data() + kMacAt), &size) != nullptr);
  const absl::Status status = DecodeHeader(page, mac_key).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("without the id of a key"));
}

}  // namespace kvkeep
