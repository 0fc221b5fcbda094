// Bytes that identify their place: no two pages of a pattern are equal, nor the same page of two
// patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvkeep {

inline std::vector<std::byte> Pattern(size_t bytes, int seed) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    const uint64_t mixed = (i / 8 + static_cast<uint64_t>(seed) * 1'000'003) * 0x9e3779b97f4a7c15;
    pattern[i] = static_cast<std::byte>(mixed >> (8 * (i % 8)));
  }
  return pattern;
}

}  // namespace kvkeep
