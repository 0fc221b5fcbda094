#include "tiers/nvme/superblock.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

Superblock Sample() {
  SeededRandom random(5);
  Superblock superblock;
  superblock.store = random.Next<Uuid>();
  superblock.device = random.Next<Uuid>();
  superblock.capacity_bytes = 100 * kMiB;
  superblock.file_bytes = kTiB;
  random.Fill(superblock.mac_key);
  return superblock;
}

void Reseal(Block& block) {
  StoreAt<uint64_t>(block.data() + 4088, Xxh3(std::span(block).first(4088)));
}

}  // namespace

TEST_CASE("superblock and label come back as they were written") {
  CHECK(*DecodeSuperblock(EncodeSuperblock(Sample())) == Sample());
  const DataFileLabel label = {.device = Sample().device, .number = 17};
  CHECK(*DecodeLabel(EncodeLabel(label)) == label);
  CHECK_FALSE(DecodeLabel(EncodeSuperblock(Sample())).ok());
}

TEST_CASE("any flipped bit of a superblock or label is data loss") {
  const Block superblock = EncodeSuperblock(Sample());
  const Block label = EncodeLabel({.device = Sample().device, .number = 1});
  for (size_t bit = 0; bit < 8 * kBlockBytes; ++bit) {
    Block bad = superblock;
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    CHECK(absl::IsDataLoss(DecodeSuperblock(bad).status()));
    bad = label;
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    CHECK(absl::IsDataLoss(DecodeLabel(bad).status()));
  }
  CHECK(absl::IsDataLoss(DecodeSuperblock(std::span(superblock).first(100)).status()));
}

TEST_CASE("a superblock of another version is refused with both versions") {
  Block block = EncodeSuperblock(Sample());
  StoreAt<uint32_t>(block.data() + 8, 2);
  Reseal(block);
  const absl::Status refused = DecodeSuperblock(block).status();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(absl::StrContains(refused.message(), "version 2, this build reads 1"));
}

TEST_CASE("a superblock whose geometry cannot be is data loss even with a right checksum") {
  for (const uint64_t capacity : {uint64_t{0}, uint64_t{kMiB}, ~uint64_t{0}}) {
    Superblock bad = Sample();
    bad.capacity_bytes = capacity;
    bad.file_bytes = kMiB;
    CHECK(absl::IsDataLoss(DecodeSuperblock(EncodeSuperblock(bad)).status()));
  }
  for (const uint64_t file : {uint64_t{0}, uint64_t{kMiB + 1}, 2 * kTiB}) {
    Superblock bad = Sample();
    bad.file_bytes = file;
    CHECK(absl::IsDataLoss(DecodeSuperblock(EncodeSuperblock(bad)).status()));
  }
}

TEST_CASE("the fingerprint tells MAC keys apart and does not contain them") {
  MacKey a{}, b{};
  b[31] = std::byte{1};
  CHECK(Fingerprint(a) == Fingerprint(a));
  CHECK(Fingerprint(a) != Fingerprint(b));
  CHECK(Fingerprint(a) != MacKeyFingerprint{});
}

}  // namespace kvkeep
