#include "tiers/base/utf8.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

namespace kvkeep {
namespace {

std::string Encoded(uint32_t character) {
  const auto low = [character](int shift) {
    return static_cast<char>(0x80 | (character >> shift & 0x3f));
  };
  if (character < 0x80) return {static_cast<char>(character)};
  if (character < 0x800) return {static_cast<char>(0xc0 | character >> 6), low(0)};
  if (character < 0x10000) return {static_cast<char>(0xe0 | character >> 12), low(6), low(0)};
  return {static_cast<char>(0xf0 | character >> 18), low(12), low(6), low(0)};
}

}  // namespace

TEST_CASE("every character is UTF-8, and no surrogate") {
  uint32_t wrong = 0;
  for (uint32_t character = 0; character < 0x120000; ++character) {
    const bool there = character < 0x110000 && (character < 0xd800 || character > 0xdfff);
    wrong += IsUtf8(Encoded(character)) != there;
  }
  CHECK(wrong == 0);
}

TEST_CASE("of all texts of up to three bytes as many are UTF-8 as characters can be put together") {
  constexpr size_t kOne = 0x80, kTwo = 0x800 - 0x80, kThree = 0x10000 - 0x800 - 0x800;
  constexpr size_t kExpected[] = {kOne, kOne * kOne + kTwo,
                                  kOne * kOne * kOne + 2 * kOne * kTwo + kThree};
  for (size_t bytes = 1; bytes <= 3; ++bytes) {
    size_t found = 0;
    std::string text(bytes, '\0');
    for (uint32_t value = 0; value < 1u << 8 * bytes; ++value) {
      for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(value >> 8 * i);
      found += IsUtf8(text);
    }
    CHECK(found == kExpected[bytes - 1]);
  }
}

TEST_CASE("where a text ends to be UTF-8 is told") {
  CHECK(Utf8Bytes("") == 0);
  CHECK(Utf8Bytes("caf\xc3\xa9") == 5);
  CHECK(Utf8Bytes("caf\xe9!") == 3);
  CHECK(Utf8Bytes("caf\xc3") == 3);                         // cut off
  CHECK(Utf8Bytes("a\xf0\x9f\x98\x80z\x80") == 6);          // not begun
  CHECK(Utf8Bytes("\xf5\x80\x80\x80") == 0);                // above the last code point
  CHECK(Utf8Bytes("\xf0\x8f\xbf\xbf") == 0);                // longer than needed
  CHECK(Utf8Bytes(absl::string_view("a\0b", 3)) == 3);
}

}  // namespace kvkeep
