#include "server/events/msgpack.h"

#include <bit>

namespace kvkeep {

void Msgpack::Number(uint8_t kind, uint64_t value, int bytes) {
  out_.push_back(static_cast<char>(kind));
  for (int byte = bytes - 1; byte >= 0; --byte) {
    out_.push_back(static_cast<char>(value >> (8 * byte)));
  }
}

void Msgpack::Uint(uint64_t value) {
  if (value < 0x80) return out_.push_back(static_cast<char>(value));
  if (value <= UINT8_MAX) return Number(0xcc, value, 1);
  if (value <= UINT16_MAX) return Number(0xcd, value, 2);
  if (value <= UINT32_MAX) return Number(0xce, value, 4);
  Number(0xcf, value, 8);
}

void Msgpack::Double(double value) { Number(0xcb, std::bit_cast<uint64_t>(value), 8); }

void Msgpack::Length(size_t length, uint8_t short_kind, size_t short_most, uint8_t kind16) {
  if (length <= short_most) return out_.push_back(static_cast<char>(short_kind | length));
  if (length <= UINT16_MAX) return Number(kind16, length, 2);
  Number(kind16 + 1, length, 4);
}

void Msgpack::Text(absl::string_view text) {
  if (text.size() > 31 && text.size() <= UINT8_MAX) {
    Number(0xd9, text.size(), 1);
  } else {
    Length(text.size(), 0xa0, 31, 0xda);
  }
  out_.append(text.data(), text.size());
}

void Msgpack::Array(size_t entries) { Length(entries, 0x90, 15, 0xdc); }
void Msgpack::Map(size_t entries) { Length(entries, 0x80, 15, 0xde); }

}  // namespace kvkeep
