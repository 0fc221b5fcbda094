#include "tiers/base/image.h"

#include <absl/strings/escaping.h>

#include <catch2/catch.hpp>
#include <limits>

#include "tests/fakes/header_page.h"
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

// XXH3's secret, a constant of the algorithm (xxhash.h).
constexpr char kXxh3Secret[] =
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e";

using Xxh3Block = std::span<std::byte, 1024>;

// Returns what the first `stripes` stripes of a block add to each of XXH3's eight lanes.
std::array<uint64_t, 8> LanesOf(Xxh3Block block, size_t stripes, const std::string& secret) {
  std::array<uint64_t, 8> lanes{};
  for (size_t stripe = 0; stripe < stripes; ++stripe) {
    for (size_t lane = 0; lane < 8; ++lane) {
      const uint64_t word = LoadAt<uint64_t>(block.data() + stripe * 64 + lane * 8);
      uint64_t key = 0;
      std::memcpy(&key, secret.data() + stripe * 8 + lane * 8, sizeof(key));
      lanes[lane] += ((word ^ key) & 0xffffffff) * ((word ^ key) >> 32);
      lanes[lane ^ 1] += word;
    }
  }
  return lanes;
}

// Writes the last 128 bytes of `forged` so that XXH3 cannot distinguish it from `block`: words that
// add what a lane lacks, and whose products are zero.
void HideFromXxh3(Xxh3Block block, Xxh3Block forged) {
  const std::string secret = absl::HexStringToBytes(kXxh3Secret);
  const std::array<uint64_t, 8> wanted = LanesOf(block, 16, secret);
  const std::array<uint64_t, 8> there = LanesOf(forged, 14, secret);
  for (size_t lane = 0; lane < 8; ++lane) {
    uint64_t key14 = 0, key15 = 0;
    std::memcpy(&key14, secret.data() + 14 * 8 + (lane ^ 1) * 8, sizeof(key14));
    std::memcpy(&key15, secret.data() + 15 * 8 + (lane ^ 1) * 8, sizeof(key15));
    // The secret supplies the high half of one word and the low half of the other.
    const uint64_t rest =
        wanted[lane] - there[lane] - (key14 & ~0xffffffffull) - (key15 & 0xffffffff);
    std::byte* const at = forged.data() + 14 * 64 + (lane ^ 1) * 8;
    StoreAt<uint64_t>(at, (key14 & ~0xffffffffull) | (rest & 0xffffffff));
    StoreAt<uint64_t>(at + 64, (rest & ~0xffffffffull) | (key15 & 0xffffffff));
  }
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

TEST_CASE_METHOD(ImageFixture, "what a header claims is read without its MAC, its identity whole") {
  const ImageHeader header = Header(5 * kPieceBytes, 100, 3);
  auto page = Encode(header, mac_key);
  std::fill(page.begin() + kClaimBytes, page.end(), std::byte{0xff});
  const absl::StatusOr<ImageClaim> claim = DecodeClaim(page);
  REQUIRE(claim.ok());
  CHECK(claim->id == header.identity.id);
  CHECK(claim->shape == header.identity.shape);
  CHECK(claim->placement == header.placement);
  page[200] ^= std::byte{1};
  CHECK(absl::IsDataLoss(DecodeClaim(page).status()));
  page[200] ^= std::byte{1};
  page[2240 + 8] ^= std::byte{1};  // the extents do not hold it any more
  CHECK(absl::IsDataLoss(DecodeClaim(page).status()));
}

TEST_CASE_METHOD(ImageFixture, "a header made with another secret is refused") {
  const auto page = Encode(Header(4096), mac_key);
  MacKey other = mac_key;
  other[0] ^= std::byte{1};
  CHECK(DecodeHeader(page, other).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE_METHOD(ImageFixture,
                 "the header of an encrypted image is of version 4 and keeps its tags") {
  const uint32_t payload = GENERATE(1u, 64u << 20, 256u << 20);
  ImageHeader written = Header(payload, 100);
  ImageEncryption& encryption = written.encryption.emplace();
  encryption.key_id = random.Next<KeyId>();
  encryption.nonce = random.Next<ImageNonce>();
  random.Fill(encryption.checksums_tag);
  encryption.unit_tags.resize(written.identity.shape.units());
  for (CipherTag& tag : encryption.unit_tags) random.Fill(tag);
  auto page = Encode(written, mac_key);
  CHECK(page[8] == std::byte{4});
  const absl::StatusOr<ImageHeader> read = DecodeHeader(page, mac_key);
  REQUIRE(read.ok());
  CHECK(read->encryption == written.encryption);
  CHECK(read->identity.piece_checksums == written.identity.piece_checksums);
  CHECK(read->placement == written.placement);
  // Key id and nonce are part of what root and MAC cover.
  page[GENERATE(96u, 127u)] ^= std::byte{1};
  CHECK_FALSE(DecodeHeader(page, mac_key).ok());
}

TEST_CASE_METHOD(ImageFixture,
                 "a plain header of version 3 is zero where an encrypted one has more") {
  const auto page = Encode(Header(3 << 20, 100), mac_key);
  CHECK(page[8] == std::byte{3});
  for (size_t at = 96; at < 128; ++at) REQUIRE(page[at] == std::byte{0});
  for (size_t at = 2784; at < kHeaderBytes; ++at) REQUIRE(page[at] == std::byte{0});
  CHECK_FALSE(DecodeHeader(page, mac_key)->encryption.has_value());
}

TEST_CASE_METHOD(ImageFixture, "another format version is refused by name, not guessed at") {
  auto page = Encode(Header(4096), mac_key);
  page[8] = std::byte{GENERATE(uint8_t{0}, uint8_t{5})};
  CHECK(DecodeHeader(page, mac_key).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE_METHOD(ImageFixture, "an identity that was forged below its root is refused by the MAC") {
  const auto page = Encode(Header(3 << 20, 100), mac_key);
  const auto forged = [&](const std::array<std::byte, kHeaderBytes>& from) {
    auto to = from;
    random.Fill(std::span(to).subspan(16, 48));   // namespace and key
    random.Fill(std::span(to).subspan(128, 24));  // checksums of the pieces
    auto block = from;
    HideFromXxh3(std::span(block).first<1024>(), std::span(to).first<1024>());
    REQUIRE(HeaderRoot(to) == Xxh3_128(std::span(to).first(2176)));
    return to;
  };
  const absl::Status refused = DecodeHeader(forged(page), mac_key).status();
  CHECK(absl::IsDataLoss(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("MAC"));
  // Before version 3 the MAC cannot tell, so such pages are not written any more. Calling a page
  // one of these versions does not help.
  auto former = page;
  MakeFormer(former, mac_key);
  CHECK(DecodeHeader(forged(former), mac_key).ok());
  auto called = page;
  called[8] = std::byte{1};
  StoreAt<Digest128>(called.data() + 2176, Xxh3_128(std::span(called).first(2176)));
  CHECK(absl::IsDataLoss(DecodeHeader(called, mac_key).status()));
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
  constexpr size_t kKeyIdAt = 96;
  std::fill_n(page.begin() + kKeyIdAt, KeyId::kSize, std::byte{0});
  MakeHeaderRight(page, mac_key);
  const absl::Status status = DecodeHeader(page, mac_key).status();
  CHECK(absl::IsDataLoss(status));
  CHECK_THAT(std::string(status.message()), Catch::Contains("without the id of a key"));
}

}  // namespace kvkeep
