// Little-endian loads and stores for the fixed-layout formats (image header, index record,
// superblock).
#pragma once

#include <absl/strings/string_view.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace kvkeep {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats are written by plain stores");

template <typename T>
requires std::is_trivially_copyable_v<T> T LoadAt(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
requires std::is_trivially_copyable_v<T>
void StoreAt(std::byte* to, const T& value) { std::memcpy(to, &value, sizeof(T)); }

inline std::span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline absl::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace kvkeep
