#include "tools/bench/client/content.h"

#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "tiers/base/units.h"

namespace kvkeep::bench {

TEST_CASE("a key names its payload, and no two chunks have the same key") {
  std::set<ChunkKey> keys;
  for (uint64_t sequence = 0; sequence < 1000; ++sequence) {
    const ChunkKey key = MakeKey(1, sequence, sequence % 7);
    CHECK(PayloadOf(key) == sequence % 7);
    keys.insert(key);
  }
  CHECK(keys.size() == 1000);
  CHECK(MakeKey(1, 5, 0) != MakeKey(2, 5, 0));
}

TEST_CASE("any part of a payload is checked with nothing but its key and offset") {
  std::vector<std::byte> bytes(3 * kPieceBytes + 12'345);
  const ChunkKey key = MakeKey(3, 99, 4);
  FillPayload(3, 4, bytes);
  const std::span<const std::byte> all(bytes);
  CHECK(CountWrong(3, key, all) == 0);
  CHECK(CountWrong(3, key, all.subspan(kPieceBytes, kPieceBytes), kPieceBytes) == 0);
  CHECK(CountWrong(3, key, all.subspan(3 * kPieceBytes), 3 * kPieceBytes) == 0);
  // Another payload, another offset, another seed, a flipped bit.
  CHECK(CountWrong(3, MakeKey(3, 99, 5), all) > bytes.size() / 2);
  CHECK(CountWrong(3, key, all.subspan(kPieceBytes, kPieceBytes), 0) > kPieceBytes / 2);
  CHECK(CountWrong(4, key, all) > bytes.size() / 2);
  bytes[2 * kPieceBytes + 5] ^= std::byte{1};
  CHECK(CountWrong(3, key, all.subspan(2 * kPieceBytes, 64), 2 * kPieceBytes) == 1);
}

}  // namespace kvkeep::bench
