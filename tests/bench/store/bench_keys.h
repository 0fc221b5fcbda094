// Keys of the store's benchmarks. A number gives the same key in every program.
#pragma once

#include <cstdint>
#include <span>

#include "tests/fakes/seeded_random.h"
#include "tiers/base/key.h"

namespace kvkeep {

inline constexpr size_t kLookupKeys = 512;  // of one lookup

inline ChunkKey BenchKey(uint64_t number) {
  ChunkKey key;
  SeededRandom(number * 0x9e3779b97f4a7c15 + 7).Fill(std::as_writable_bytes(std::span(key.bytes)));
  return key;
}

}  // namespace kvkeep
