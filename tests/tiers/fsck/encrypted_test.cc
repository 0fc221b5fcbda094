// fsck of encrypted images: with the keys it checks every byte, without them it reports how many
// images it did not check.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/fakes/header_page.h"
#include "tests/tiers/fsck/store_on_disk.h"
#include "tiers/fsck/fsck.h"

namespace kvkeep {
namespace {

std::shared_ptr<KeyRing> SomeKeys(uint64_t seed) {
  SeededRandom random(seed);
  return KeyRing::InMemory({""}, &random);
}

// A device with a plain chunk and three encrypted ones; stopped.
struct Vault : StoreOnDisk {
  Vault() {
    REQUIRE(Start());
    Put(1, 100'000, 777);
    Stop();
    keys = SomeKeys(1);
    REQUIRE(Start());
    Put(2, 1);
    Put(3, 3 * kMiB, 16 * kKiB);
    Put(4, kMiB + 1);
    Stop();
  }
};

}  // namespace

TEST_CASE("with the keys encrypted images are checked to the last byte") {
  Vault vault;
  FsckReport report = vault.Check();
  INFO(Text(report.findings));
  CHECK(report.clean());
  CHECK(report.good_chunks == 4);
  CHECK(report.plain_chunks == 1);
  CHECK(report.unchecked_chunks == 0);
  const ExtentList extents = vault.Record(3).extents;
  std::string what;
  SECTION("in the second piece") {
    vault.FlipInBlock(BlockNumber(extents[0].first.value() + 258), 5);
    what = "unit 1 of 3 does not match the tag";
  }
  SECTION("behind the tail") {
    vault.FlipInBlock(BlockNumber(extents.back().end() - 1), 4095);
    what = "unit 2 of 3 does not match the tag";
  }
  SECTION("a unit's tag") {
    vault.FlipInBlock(extents[0].first, 2800);
    what = "unit 0 of 3 does not match the tag";
  }
  SECTION("the checksums' tag") {
    vault.FlipInBlock(extents[0].first, 2784);
    what = "the checksums do not match their tag";
  }
  report = vault.Check();
  CHECK_FALSE(report.clean());
  CHECK(report.bad_chunks == 1);
  REQUIRE(report.findings.size() == 1);
  CHECK(absl::StrContains(report.findings[0].what, what));
  CHECK(vault.Check(/*headers_only=*/true).clean());
  // A header that is the record's own, which the daemon promises after a power cut as well.
  vault.boot_id = *Uuid::FromBytes("the next boot");
  CHECK(vault.Check().bad_chunks == 1);
}

TEST_CASE("images of a kvkeep whose MACs left out the identity are clean, and are read") {
  Vault vault;
  IndexBatch batch;
  for (auto& [id, record] : vault.Records()) {
    const BlockNumber first = record.extents[0].first;
    std::vector<std::byte> bytes = vault.ReadBlocks(first, kHeaderBytes);
    const HeaderPage page(bytes.data(), kHeaderBytes);
    MakeFormer(page, vault.identity.mac_key);
    vault.WriteBlocks(first, bytes);
    record.root = HeaderRoot(page);
    batch.adds.push_back(record);
  }
  vault.CommitRecords(batch);
  const FsckReport report = vault.Check();
  INFO(Text(report.findings));
  CHECK(report.clean());
  CHECK(report.good_chunks == 4);
  REQUIRE(vault.Start());
  for (const uint64_t name : {1, 2, 3, 4}) CHECK(vault.Get(name) == "hit");
}

TEST_CASE("without its key an image is counted as not checked, and is no finding") {
  Vault vault;
  vault.FlipInBlock(BlockNumber(vault.Record(3).extents[0].first.value() + 258), 5);
  vault.keys = GENERATE(0, 1) == 0 ? nullptr : SomeKeys(2);
  const FsckReport report = vault.Check();
  INFO(Text(report.findings));
  CHECK(report.clean());
  CHECK(report.good_chunks == 4);
  CHECK(report.unchecked_chunks == 3);
}

TEST_CASE("an index of encrypted images is made anew, without their keys too") {
  Vault vault;
  const std::shared_ptr<KeyRing> keys = vault.keys;
  if (GENERATE(false, true)) vault.keys = nullptr;
  std::filesystem::remove_all(vault.File("index"));
  const RebuildReport report = vault.Rebuild();
  INFO(Text(report.findings));
  CHECK(report.chunks == 4);
  vault.keys = keys;
  REQUIRE(vault.Start());
  for (uint64_t name = 1; name <= 4; ++name) CHECK(vault.Get(name) == "hit");
}

}  // namespace kvkeep
