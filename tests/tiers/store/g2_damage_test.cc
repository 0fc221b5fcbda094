// Images in G2 whose memory goes bad while a daemon runs.
#include <catch2/catch.hpp>

#include "tests/tiers/store/warm_world.h"

namespace kvkeep {

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
  CHECK(s.store().snapshot().devices[0].state == DeviceState::kOk);  // it is not to blame
}

}  // namespace kvkeep
