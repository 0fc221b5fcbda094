// Images in G2 whose memory goes bad while a daemon runs.
#include <catch2/catch.hpp>

#include "tests/fakes/broken_page.h"
#include "tests/tiers/store/warm_world.h"
#include "tiers/base/bytes.h"

namespace kvkeep {

TEST_CASE("an image whose header names blocks that are not its own is given to nobody") {
  StoreTester s(WarmWorld(false));
  for (uint64_t i = 0; i < 32; ++i) REQUIRE(s.Put(i) == "stored");  // G2 is full
  REQUIRE(s.Delete({4, 10}) == 2);
  REQUIRE(s.Put(100, 3 * kBlockBytes) == "stored");  // in two parts
  REQUIRE(MarkedBlocks(s)[4] == 8);
  std::byte* const second = BlocksAt(s, 8).data() + 2240 + 16;
  REQUIRE(LoadAt<uint64_t>(second) == 20);
  SECTION("another image's") {
    StoreAt<uint64_t>(second, 40);
    s.KillAndStart();
    CHECK(s.Get(20) == "hit");  // its blocks are its own
  }
  SECTION("nobody's") {
    REQUIRE(s.Delete({20}) == 1);
    StoreAt<uint64_t>(second, 40);
    s.KillAndStart();
    CHECK(s.store().snapshot().g2.used_bytes == 58 * kBlockBytes);
  }
  SECTION("none of the arena") {
    StoreAt<uint64_t>(second, 63);
    s.KillAndStart();
  }
  CHECK(s.counters().recovery_dropped_g2_chunks == 1);
  CHECK(s.Get(100) == "miss");
  s.store().CheckInvariants();
  for (const uint64_t name : {0, 3, 5, 9, 11, 19, 21, 30}) CHECK(s.Get(name) == "hit");
  s.Put(20);
  CHECK(s.Get(20) == "hit");
  REQUIRE(s.Put(100, 3 * kBlockBytes) == "stored");
  CHECK(s.store().snapshot().g2.used_bytes == 64 * kBlockBytes);
  CHECK(s.counters().g2_evictions == 0);
}

TEST_CASE("an image whose header became another chunk's after the start is a miss") {
  StoreTester s(WarmWorld(/*with_device=*/false));
  REQUIRE(s.Put(1) == "stored");
  const uint64_t first = MarkedBlocks(s).at(0);
  REQUIRE(s.Put(2) == "stored");
  const uint64_t second = MarkedBlocks(s)[first == MarkedBlocks(s)[0] ? 1 : 0];
  s.KillAndStart();
  const auto from = BlocksAt(s, second);
  std::copy(from.begin(), from.end(), BlocksAt(s, first).begin());
  CHECK(s.Get(1) == "damaged");
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "hit");
  CHECK(s.counters().corrupt_chunks == 1);
}

TEST_CASE("an image that an earlier one of its key replaced after the start is a miss") {
  StoreTester s(WarmWorld(/*with_device=*/false));
  REQUIRE(s.Put(1) == "stored");
  const uint64_t first = MarkedBlocks(s).at(0);
  const std::vector<std::byte> earlier(BlocksAt(s, first, 2).begin(), BlocksAt(s, first, 2).end());
  REQUIRE(s.Delete({1}) == 1);
  REQUIRE(s.Put(1) == "stored");
  REQUIRE(MarkedBlocks(s) == std::vector<uint64_t>{first});
  s.KillAndStart();
  std::copy(earlier.begin(), earlier.end(), BlocksAt(s, first, 2).begin());
  CHECK(s.Get(1) == "damaged");  // the mark belongs to another one
  CHECK(s.Get(1) == "miss");
}

TEST_CASE("a chunk that is deleted while it is verified is whole for who reads it") {
  StoreTester s(WarmWorld(/*with_device=*/false));
  REQUIRE(s.Put(1) == "stored");
  s.KillAndStart();
  ChunkReader reader = s.Pin(1);
  REQUIRE(s.Delete({1}) == 1);  // and its mark cleared
  CHECK(s.WaitFor(reader, 0, 1) == "ok");
  CHECK(s.Bytes(1, reader) == "hit");
  CHECK(s.Get(1) == "miss");
}

TEST_CASE("a header that goes bad in memory is no write to G3 and no checksums for a reader") {
  StoreTester s(WarmWorld());
  REQUIRE(s.Put(1) == "stored");
  ChunkReader reader = s.Pin(1);
  REQUIRE(reader.PieceChecksums().size() == 1);
  BlocksAt(s, MarkedBlocks(s).at(0))[100] ^= std::byte{4};
  CHECK(reader.PieceChecksums().empty());
  s.Settle();
  CHECK(s.Where(1) == "2");
  CHECK(s.counters().write_backs_failed == 1);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);  // it is not at fault
}

TEST_CASE("an image whose header's memory cannot be read at the start is a miss") {
  StoreTester s(WarmWorld(/*with_device=*/false));
  REQUIRE(s.Put(1) == "stored");
  const uint64_t first = MarkedBlocks(s).at(0);
  REQUIRE(s.Put(2) == "stored");
  const BrokenPage broken(BlocksAt(s, first).data());
  s.KillAndStart();
  CHECK(s.counters().recovery_dropped_g2_chunks == 1);
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "hit");
}

TEST_CASE("an image whose payload's memory cannot be read is damaged, then a miss") {
  for (const bool with_device : {false, true}) {
    CAPTURE(with_device);
    StoreTester s(WarmWorld(with_device));
    REQUIRE(s.Put(1) == "stored");
    const uint64_t first = MarkedBlocks(s).at(0);
    REQUIRE(s.Put(2) == "stored");
    s.Settle();
    const BrokenPage broken(BlocksAt(s, first + 1).data());
    s.KillAndStart();
    CHECK(s.counters().recovered_g2_chunks == 2);
    if (!with_device) {
      CHECK(s.Get(1) == "damaged");
      CHECK(s.Get(1) == "miss");
    }
    CHECK(s.Get(2) == "hit");
    s.Settle();
    CHECK(s.counters().corrupt_chunks == 1);  // with a device by the sweep
  }
}

TEST_CASE("a resident chunk whose memory the kernel gave up on is a miss, its block is not used") {
  StoreTester s(WarmWorld(/*with_device=*/false));
  REQUIRE(s.Put(1) == "stored");
  const uint64_t first = MarkedBlocks(s).at(0);
  REQUIRE(s.Put(2) == "stored");
  s.world.arena().broken = {{BlockNumber(first), BlockCount(1)}};
  s.Settle();
  CHECK(s.counters().corrupt_chunks == 1);
  CHECK(s.Get(1) == "miss");
  CHECK(s.Get(2) == "hit");
  for (uint64_t key = 10; key < 200; ++key) {  // G2 is filled more than once
    s.Put(key);
    CHECK(s.world.arena().live_marks()[first] == 0);
  }
  s.store().CheckInvariants();
}

TEST_CASE("a huge page that breaks costs one walk over the chunks, and all of it is used no more") {
  WorldOptions options = WarmWorld(/*with_device=*/false);
  options.hold_work = 8;
  StoreTester s(options);
  uint64_t slices = 0;
  s.world.SetBetweenSlices([&slices] { ++slices; });
  s.KillAndStart();
  for (uint64_t i = 0; i < 32; ++i) REQUIRE(s.Put(i) == "stored");  // G2 is full
  const auto slices_of_breaking = [&](const Extent& page) {
    s.world.arena().broken = {page};
    const uint64_t before = slices;
    s.store().Tick();
    return slices - before;
  };
  const uint64_t of_one_block = slices_of_breaking({BlockNumber(0), BlockCount(1)});
  CHECK(s.counters().corrupt_chunks == 1);
  const uint64_t of_many = slices_of_breaking({BlockNumber(16), BlockCount(32)});
  CHECK(s.counters().corrupt_chunks == 17);
  CHECK(of_many < of_one_block + 17);  // a slice more for each chunk that goes
  for (uint64_t key = 100; key < 300; ++key) {
    s.Put(key);
    for (uint64_t block = 16; block < 48; ++block) {
      REQUIRE(s.world.arena().live_marks()[block] == 0);
    }
  }
  s.store().CheckInvariants();
}

TEST_CASE("memory that breaks under a chunk while it is verified is found when that has ended") {
  StoreTester s(WarmWorld(/*with_device=*/false));
  REQUIRE(s.Put(1) == "stored");
  const uint64_t first = MarkedBlocks(s).at(0);
  s.KillAndStart();
  {
    const ChunkReader reader = s.Pin(1);
    s.world.arena().broken = {{BlockNumber(first), BlockCount(1)}};
    s.store().Tick();  // the chunk is not resident
    CHECK(s.counters().corrupt_chunks == 0);
  }
  s.Settle();
  CHECK(s.counters().corrupt_chunks == 1);
  CHECK(s.Get(1) == "miss");
  s.store().CheckInvariants();
}

TEST_CASE("a header whose memory breaks while it is resident is no write to G3") {
  StoreTester s(WarmWorld());
  REQUIRE(s.Put(1) == "stored");
  {
    const BrokenPage broken(BlocksAt(s, MarkedBlocks(s).at(0)).data());
    s.Settle();
  }
  CHECK(s.Where(1) == "2");
  CHECK(s.counters().write_backs_failed == 1);
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);
}

}  // namespace kvkeep
