#include "tools/kvkeep/generator.h"

#include <cstring>

#include "tiers/base/check.h"

namespace kvkeep::tools {
namespace {

constexpr uint64_t kStep = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: splitmix64's

inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Word n of the stream is Mix(state + n * kStep): each is independent of the one before it.
inline uint64_t FirstState(uint64_t seed, uint64_t id) {
  return Mix(Mix(seed + kStep) ^ id) + kStep;
}

}  // namespace

uint64_t MixIds(uint64_t seed, uint64_t id) { return Mix(FirstState(seed, id) ^ kStep); }

void GeneratePayload(uint64_t seed, uint64_t id, std::span<std::byte> out) {
  uint64_t state = FirstState(seed, id);
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= out.size(); at += sizeof(uint64_t), state += kStep) {
    const uint64_t word = Mix(state);
    std::memcpy(out.data() + at, &word, sizeof(word));
  }
  const uint64_t word = Mix(state);
  if (at < out.size()) std::memcpy(out.data() + at, &word, out.size() - at);
}

uint64_t CountWrongBytes(uint64_t seed, uint64_t id, std::span<const std::byte> got,
                         uint64_t offset) {
  KVKEEP_CHECK(offset % sizeof(uint64_t) == 0);
  uint64_t state = FirstState(seed, id) + offset / sizeof(uint64_t) * kStep;
  uint64_t wrong = 0;
  for (size_t at = 0; at < got.size(); at += sizeof(uint64_t), state += kStep) {
    const size_t size = std::min(sizeof(uint64_t), got.size() - at);
    const uint64_t word = Mix(state);
    uint64_t found = word;  // bytes beyond the payload's end count as right
    std::memcpy(&found, got.data() + at, size);
    for (uint64_t difference = word ^ found; difference != 0; difference >>= 8) {
      wrong += (difference & 0xFF) != 0;
    }
  }
  return wrong;
}

}  // namespace kvkeep::tools
