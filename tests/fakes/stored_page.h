// Pages of a release, kept as bytes in a test: they show a format that changes without a new
// version, which reading back pages of the same sources never shows.
#pragma once

#include <absl/strings/escaping.h>

#include <array>
#include <cstring>
#include <span>
#include <string>

#include "tiers/base/units.h"

namespace kvkeep {

struct StoredRow {
  size_t at;        // in the page
  const char* hex;  // its bytes; all others are zero
};

inline std::array<std::byte, kBlockBytes> StoredPage(std::span<const StoredRow> rows) {
  std::array<std::byte, kBlockBytes> page{};
  for (const StoredRow& row : rows) {
    const std::string bytes = absl::HexStringToBytes(row.hex);
    std::memcpy(page.data() + row.at, bytes.data(), bytes.size());
  }
  return page;
}

// Returns this many bytes, counted up from `first`, which the pages hold as arbitrary bytes.
template <typename Bytes>
Bytes CountedFrom(uint8_t first) {
  Bytes bytes;
  for (size_t i = 0; i < sizeof(Bytes); ++i) {
    reinterpret_cast<std::byte*>(&bytes)[i] = std::byte(static_cast<uint8_t>(first + i));
  }
  return bytes;
}

}  // namespace kvkeep
