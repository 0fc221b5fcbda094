// Payloads of versions: a function of key and version, so that a daemon's answers can be checked
// without a copy. The payload begins with the version.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/key.h"

namespace kvkeep::crash {

struct KeyName {
  uint32_t client = 0, number = 0;
  ChunkKey key() const {
    return *ChunkKey::FromBytes("crash " + std::to_string(client) + " " + std::to_string(number));
  }
  uint64_t seed(uint64_t version) const {
    return (uint64_t{client} << 56 | uint64_t{number} << 40 | version) * 0x9E3779B97F4A7C15;
  }
};

inline uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Returns a payload's size: half are small, some have several pieces; about 300 KiB on average.
inline size_t SizeOf(const KeyName& name, uint32_t version) {
  const uint64_t random = Mix(name.seed(version));
  const uint64_t kind = random % 8, rest = random / 8;
  if (kind < 4) return 8 + rest % (16 << 10);
  if (kind < 7) return (16 << 10) + rest % (240 << 10);
  return (1 << 20) + rest % (2 << 20);
}

inline std::vector<std::byte> PayloadOf(const KeyName& name, uint32_t version) {
  std::vector<std::byte> payload(SizeOf(name, version));
  uint64_t word = version, x = name.seed(version);
  for (size_t at = 0; at < payload.size(); at += sizeof(word)) {
    std::memcpy(payload.data() + at, &word, std::min(sizeof(word), payload.size() - at));
    word = Mix(x += 0x9E3779B97F4A7C15);
  }
  return payload;
}

// Returns the version whose bytes these are, complete and without others; nullopt: none.
inline std::optional<uint32_t> VersionOf(const KeyName& name, std::span<const std::byte> bytes) {
  uint64_t version = 0;
  if (bytes.size() < sizeof(version)) return std::nullopt;
  std::memcpy(&version, bytes.data(), sizeof(version));
  if (version == 0 || version > UINT32_MAX) return std::nullopt;
  const std::vector<std::byte> right = PayloadOf(name, static_cast<uint32_t>(version));
  const bool same = std::equal(bytes.begin(), bytes.end(), right.begin(), right.end());
  return same ? std::optional(static_cast<uint32_t>(version)) : std::nullopt;
}

}  // namespace kvkeep::crash
