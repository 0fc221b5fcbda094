#include "tiers/base/utf8.h"

#include <cstdint>

namespace kvkeep {
namespace {

// Returns the length of the character that a text begins with, or 0 if it begins with none.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  size_t bytes = 0;
  // Bounds of the second byte. They exclude overlong forms, surrogates, and numbers above the last
  // character.
  uint8_t least = 0x80, most = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) {
    bytes = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    bytes = 3;
    if (first == 0xe0) least = 0xa0;
    if (first == 0xed) most = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    bytes = 4;
    if (first == 0xf0) least = 0x90;
    if (first == 0xf4) most = 0x8f;
  }
  if (bytes == 0 || text.size() < bytes || byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return bytes;
}

}  // namespace

size_t Utf8Bytes(absl::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const size_t bytes = CharacterBytes(text.substr(done));
    if (bytes == 0) break;
    done += bytes;
  }
  return done;
}

}  // namespace kvkeep
