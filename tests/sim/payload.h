// What a put's bytes must be: a function of the chunk's name and the version of the put, so that
// any byte that comes back can be judged without keeping a copy.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/image.h"

namespace kvkeep {

inline std::vector<std::byte> MakePayload(uint64_t name, uint64_t version, size_t bytes) {
  SeededRandom random(name * 0x9e3779b97f4a7c15 + version);
  std::vector<std::byte> payload(bytes);
  random.Fill(payload);
  return payload;
}

inline ChunkKey MakeKey(uint64_t name) {
  ChunkKey key;
  std::memcpy(key.bytes.data(), &name, sizeof(name));
  key.bytes[31] = 1;
  return key;
}

}  // namespace kvkeep
