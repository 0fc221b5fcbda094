#include "tiers/base/key.h"

#include <catch2/catch.hpp>

namespace kvkeep {

TEST_CASE("a key goes to hexadecimal and back") {
  const absl::StatusOr<ChunkKey> key = ChunkKey::FromHex("00ff10");
  REQUIRE(key.ok());
  CHECK(key->ToHex() == "00ff10" + std::string(58, '0'));
  CHECK(*ChunkKey::FromHex(key->ToHex()) == *key);
}

TEST_CASE("a malformed key is refused with what was expected") {
  for (const char* bad : {"", "0", "zz", "0x00"}) CHECK_FALSE(ChunkKey::FromHex(bad).ok());
  CHECK_FALSE(ChunkKey::FromHex(std::string(66, '0')).ok());
  CHECK_FALSE(ChunkKey::FromBytes("").ok());
  CHECK_FALSE(ChunkKey::FromBytes(std::string(33, 'x')).ok());
}

TEST_CASE("every field of a chunk's identity takes part in its hash, and so does the seed") {
  const ChunkId id{};
  ChunkId other_ns = id, other_key = id, other_part = id;
  other_ns.ns.bytes[15] = 1;
  other_key.key.bytes[31] = 1;
  other_part.part = PartId(1);
  const ChunkIdHash hash{.seed = 1};
  CHECK(hash(other_ns) != hash(id));
  CHECK(hash(other_key) != hash(id));
  CHECK(hash(other_part) != hash(id));
  CHECK(ChunkIdHash{.seed = 2}(id) != hash(id));
}

}  // namespace kvkeep
