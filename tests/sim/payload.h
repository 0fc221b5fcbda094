// A put's payload: a function of the chunk's name and the put's version, so that any byte read can
// be checked without a copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/image.h"

namespace kvkeep {

// Not a multiple of SeededRandom's step, which would make one name's bytes another's, shifted.
inline uint64_t PayloadSeed(uint64_t name, uint64_t version) {
  return name * 0xd6e8feb86659fd93 + version;
}

inline std::vector<std::byte> MakePayload(uint64_t name, uint64_t version, size_t bytes) {
  SeededRandom random(PayloadSeed(name, version));
  std::vector<std::byte> payload(bytes);
  random.Fill(payload);
  return payload;
}

// Returns whether these are its bytes from `offset` on, without a copy. REQUIRES: offset % 8 == 0.
inline bool IsPayload(uint64_t name, uint64_t version, size_t offset,
                      std::span<const std::byte> bytes) {
  SeededRandom random(PayloadSeed(name, version));
  random.Skip(offset / sizeof(uint64_t));
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t wanted = 0, is = 0;
    random.Fill(std::as_writable_bytes(std::span(&wanted, 1)));
    std::memcpy(&is, bytes.data(), sizeof(is));
    if (is != wanted) return false;
    bytes = bytes.subspan(sizeof(is));
  }
  std::byte rest[sizeof(uint64_t)];
  random.Fill(rest);
  return std::equal(bytes.begin(), bytes.end(), rest);
}

inline ChunkKey MakeKey(uint64_t name) {
  ChunkKey key;
  std::memcpy(key.bytes.data(), &name, sizeof(name));
  key.bytes[31] = 1;
  return key;
}

}  // namespace kvkeep
