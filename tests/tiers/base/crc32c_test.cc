#include "tiers/base/crc32c.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"

namespace kvkeep {

TEST_CASE("a CRC-32C is that of RFC 3720, by the instruction and by tables") {
  CHECK(Crc32c(AsBytes("123456789")) == 0xe3069283);
  CHECK(Crc32c({}) == 0);
  CHECK(Crc32c(std::vector<std::byte>(32)) == 0x8a9136aa);
  CHECK(Crc32c(std::vector<std::byte>(32, std::byte{0xff})) == 0x62a8ab43);
  CHECK(Crc32cByTables(AsBytes("123456789")) == 0xe3069283);
}

TEST_CASE("a CRC-32C of parts is that of the whole, wherever it is cut") {
  SeededRandom random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes(random.Below(300));
    random.Fill(bytes);
    const std::span<const std::byte> all(bytes);
    const size_t cut = random.Below(bytes.size() + 1);
    CAPTURE(bytes.size(), cut);
    CHECK(Crc32c(all) == Crc32cByTables(all));
    CHECK(Crc32c(all.subspan(cut), Crc32c(all.first(cut))) == Crc32c(all));
  }
}

}  // namespace kvkeep
