#include "tools/kvkeep/generator.h"

#include <catch2/catch.hpp>
#include <set>
#include <vector>

namespace kvkeep::tools {
namespace {

std::vector<std::byte> Payload(uint64_t seed, uint64_t id, size_t size) {
  std::vector<std::byte> bytes(size);
  GeneratePayload(seed, id, bytes);
  return bytes;
}

}  // namespace

TEST_CASE("payloads of any size are right by their own judgement, and prefixes of longer ones") {
  const std::vector<std::byte> longest = Payload(1, 2, 70'003);
  for (size_t size : {0, 1, 7, 8, 9, 15, 16, 17, 4096, 4097, 70'003}) {
    const std::vector<std::byte> bytes = Payload(1, 2, size);
    CHECK(std::equal(bytes.begin(), bytes.end(), longest.begin()));
    CHECK(CountWrongBytes(1, 2, bytes) == 0);
  }
}

TEST_CASE("every single wrong byte is counted, the last odd ones too") {
  for (size_t size : {1, 7, 8, 13, 64}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<std::byte> bytes = Payload(1, 2, size);
      bytes[at] ^= std::byte{0x01};
      CHECK(CountWrongBytes(1, 2, bytes) == 1);
    }
  }
  std::vector<std::byte> bytes = Payload(1, 2, 64);
  for (size_t at : {3, 4, 40, 63}) bytes[at] ^= std::byte{0x80};
  CHECK(CountWrongBytes(1, 2, bytes) == 4);
}

TEST_CASE("another id or seed is another payload, nearly everywhere") {
  const std::vector<std::byte> bytes = Payload(1, 2, 100'000);
  for (auto [seed, id] : {std::pair{1, 3}, {2, 2}, {2, 1}, {0, 0}, {1, 0}}) {
    CHECK(CountWrongBytes(seed, id, bytes) > 99'000);
  }
}

TEST_CASE("bytes shifted within one payload are wrong") {
  std::vector<std::byte> bytes = Payload(1, 2, 8008);
  CHECK(CountWrongBytes(1, 2, std::span(bytes).subspan(8)) > 7'900);
}

TEST_CASE("a part from the middle is right at its own offset and at no other") {
  const std::vector<std::byte> bytes = Payload(1, 2, 8008);
  CHECK(CountWrongBytes(1, 2, std::span(bytes).subspan(4096), 4096) == 0);
  CHECK(CountWrongBytes(1, 2, std::span(bytes).subspan(8, 13), 8) == 0);
  CHECK(CountWrongBytes(1, 2, std::span(bytes).subspan(4096), 4104) > 3'800);
}

TEST_CASE("choices by id spread evenly") {
  std::vector<int> hits(3);
  for (uint64_t id = 0; id < 3000; ++id) ++hits[MixIds(7, id) % 3];
  for (int count : hits) CHECK(std::abs(count - 1000) < 150);
}

}  // namespace kvkeep::tools
