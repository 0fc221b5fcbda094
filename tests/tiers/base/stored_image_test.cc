// Header pages of versions 1 to 4, made by the layout in image.h instead of our encoder.
#include <catch2/catch.hpp>

#include "tests/fakes/stored_page.h"
#include "tiers/base/image.h"

namespace kvkeep {
namespace {

constexpr StoredRow kPlain[] = {
    {0, "4b564b494d4147450300000002000000101112131415161718191a1b1c1d1e1f"},
    {32, "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"},
    {64, "0300000005001000090000000000000000401e18240a06008877665544332211"},
    {128, "a8a7a6a5a4a3a2a1b8b7b6b5b4b3b2b100000000000000000000000000000000"},
    {2176, "c9e60f44237b233707bf628cadd8a82703000000000000000200000000000000"},
    {2208, "404142434445464748494a4b4c4d4e4f08070605040302012a00000000000000"},
    {2240, "e803000000000000c80000000000000088130000000000003a00000000000000"},
    {2752, "9900bcbb2a17ee1ee122031e6d8c00f8b6050b799a670389695a7897cc118632"},
};

constexpr StoredRow kEncrypted[] = {
    {0, "4b564b494d4147450400000002000000101112131415161718191a1b1c1d1e1f"},
    {32, "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"},
    {64, "0300000005001000090000000000000000401e18240a06008877665544332211"},
    {96, "505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f"},
    {128, "a8a7a6a5a4a3a2a1b8b7b6b5b4b3b2b100000000000000000000000000000000"},
    {2176, "5af78e84fdb8e90f96e48674c1c7ad0403000000000000000200000000000000"},
    {2208, "404142434445464748494a4b4c4d4e4f08070605040302012a00000000000000"},
    {2240, "e803000000000000c80000000000000088130000000000003a00000000000000"},
    {2752, "9a6b4b07289254764dcf810a6037aa3af7abf32391427a18304c148910cf309b"},
    {2784, "707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f"},
    {2816, "909192939495969798999a9b9c9d9e9f00000000000000000000000000000000"},
};

// As an earlier kvkeep wrote them: their MAC covers the root in place of the identity.
constexpr StoredRow kFormerPlain[] = {
    {0, "4b564b494d4147450100000002000000101112131415161718191a1b1c1d1e1f"},
    {32, "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"},
    {64, "0300000005001000090000000000000000401e18240a06008877665544332211"},
    {128, "a8a7a6a5a4a3a2a1b8b7b6b5b4b3b2b100000000000000000000000000000000"},
    {2176, "892c6b915982b1087fc0d83721f2ca9503000000000000000200000000000000"},
    {2208, "404142434445464748494a4b4c4d4e4f08070605040302012a00000000000000"},
    {2240, "e803000000000000c80000000000000088130000000000003a00000000000000"},
    {2752, "7d8ce0952a51731d0d9bb1bf3cc1a151826ef3270a4121cfb3b38821e3455ee6"},
};

constexpr StoredRow kFormerEncrypted[] = {
    {0, "4b564b494d4147450200000002000000101112131415161718191a1b1c1d1e1f"},
    {32, "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"},
    {64, "0300000005001000090000000000000000401e18240a06008877665544332211"},
    {96, "505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f"},
    {128, "a8a7a6a5a4a3a2a1b8b7b6b5b4b3b2b100000000000000000000000000000000"},
    {2176, "3e6528893aa38f31b630772857e413df03000000000000000200000000000000"},
    {2208, "404142434445464748494a4b4c4d4e4f08070605040302012a00000000000000"},
    {2240, "e803000000000000c80000000000000088130000000000003a00000000000000"},
    {2752, "f28b9aa4b5374690a5faa6f7a87e57966f006f07045b884b21507f0d78736fed"},
    {2784, "707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f"},
    {2816, "909192939495969798999a9b9c9d9e9f00000000000000000000000000000000"},
};

ImageHeader StoredHeader() {
  ImageHeader header;
  header.identity = {
      .id = {CountedFrom<NamespaceDigest>(0x10), CountedFrom<ChunkKey>(0x20), PartId(3)},
      .shape = {.payload_bytes = kPieceBytes + 5, .tail_bytes = 9},
      .created_unix_us = 1'700'000'000'000'000,
      .tail_checksum = 0x1122334455667788,
      .piece_checksums = {0xa1a2a3a4a5a6a7a8, 0xb1b2b3b4b5b6b7b8}};
  header.placement = {
      .tier = Tier::kG3,
      .place = CountedFrom<Uuid>(0x40),
      .incarnation = Incarnation(0x0102030405060708),
      .generation = Generation(42),
      .extents = {{BlockNumber(1000), BlockCount(200)}, {BlockNumber(5000), BlockCount(58)}}};
  return header;
}

ImageHeader StoredEncryptedHeader() {
  ImageHeader header = StoredHeader();
  header.encryption = {.key_id = CountedFrom<KeyId>(0x50),
                       .nonce = CountedFrom<ImageNonce>(0x60),
                       .checksums_tag = CountedFrom<CipherTag>(0x70),
                       .unit_tags = {CountedFrom<CipherTag>(0x80), CountedFrom<CipherTag>(0x90)}};
  return header;
}

void CheckRead(std::span<const StoredRow> rows, const ImageHeader& header) {
  const absl::StatusOr<ImageHeader> read = DecodeHeader(StoredPage(rows), CountedFrom<MacKey>(0));
  INFO(read.status());
  REQUIRE(read.ok());
  CHECK(read->identity.id == header.identity.id);
  CHECK(read->identity.shape == header.identity.shape);
  CHECK(read->identity.created_unix_us == header.identity.created_unix_us);
  CHECK(read->identity.tail_checksum == header.identity.tail_checksum);
  CHECK(read->identity.piece_checksums == header.identity.piece_checksums);
  CHECK(read->placement == header.placement);
  CHECK(read->encryption == header.encryption);
}

void CheckWritten(const ImageHeader& header, std::span<const StoredRow> rows) {
  std::array<std::byte, kBlockBytes> written;
  EncodeHeader(header, CountedFrom<MacKey>(0), written);
  CHECK(written == StoredPage(rows));
}

}  // namespace

TEST_CASE("a stored header page of version 3 is read, and written byte for byte") {
  CheckRead(kPlain, StoredHeader());
  CheckWritten(StoredHeader(), kPlain);
}

TEST_CASE("a stored header page of version 4, encrypted, is read, and written byte for byte") {
  CheckRead(kEncrypted, StoredEncryptedHeader());
  CheckWritten(StoredEncryptedHeader(), kEncrypted);
}

TEST_CASE("stored header pages of versions 1 and 2 are read") {
  CheckRead(kFormerPlain, StoredHeader());
  CheckRead(kFormerEncrypted, StoredEncryptedHeader());
}

}  // namespace kvkeep
