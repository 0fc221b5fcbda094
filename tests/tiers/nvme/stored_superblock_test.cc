// Superblock and label of version 1, made by the layout in superblock.h instead of our encoder.
#include <catch2/catch.hpp>

#include "tests/fakes/stored_page.h"
#include "tiers/nvme/superblock.h"

namespace kvkeep {
namespace {

constexpr StoredRow kSuperblock[] = {
    {0, "4b564b53555045520100000000000000101112131415161718191a1b1c1d1e1f"},
    {32, "404142434445464748494a4b4c4d4e4f00000040010000000000004000000000"},
    {64, "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf00000000000000000000000000000000"},
    {4064, "00000000000000000000000000000000000000000000000051450987bc8a9d02"},
};

constexpr StoredRow kLabel[] = {
    {0, "4b564b4c4142454c0100000003000000404142434445464748494a4b4c4d4e4f"},
    {4064, "0000000000000000000000000000000000000000000000000cdea507e543f92c"},
};

}  // namespace

TEST_CASE("a stored superblock of version 1 is read, and written byte for byte") {
  const Superblock superblock{.store = CountedFrom<Uuid>(0x10),
                              .device = CountedFrom<Uuid>(0x40),
                              .capacity_bytes = 5 * kGiB,
                              .file_bytes = kGiB,
                              .mac_key = CountedFrom<MacKeyFingerprint>(0xa0)};
  const Block stored = StoredPage(kSuperblock);
  CHECK(EncodeSuperblock(superblock) == stored);
  const absl::StatusOr<Superblock> read = DecodeSuperblock(stored);
  REQUIRE(read.ok());
  CHECK(*read == superblock);
}

TEST_CASE("a stored label of version 1 is read, and written byte for byte") {
  const DataFileLabel label{.device = CountedFrom<Uuid>(0x40), .number = 3};
  const Block stored = StoredPage(kLabel);
  CHECK(EncodeLabel(label) == stored);
  const absl::StatusOr<DataFileLabel> read = DecodeLabel(stored);
  REQUIRE(read.ok());
  CHECK(*read == label);
}

}  // namespace kvkeep
