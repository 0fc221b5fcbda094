// Msgpack: appends values to a string in MessagePack: the types that events need. Each value has
// its shortest form, as msgspec writes it.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <string>

namespace kvkeep {

class Msgpack {
 public:
  void Nil() { out_.push_back('\xc0'); }
  void Uint(uint64_t value);
  void Double(double value);
  void Text(absl::string_view text);  // UTF-8
  // `entries` values (for a map: names and values in turn) must follow.
  void Array(size_t entries);
  void Map(size_t entries);

  const std::string& bytes() const { return out_; }

 private:
  void Number(uint8_t kind, uint64_t value, int bytes);  // big-endian
  // Writes the length of a kind with a short form for up to `short_most`, and two longer forms.
  void Length(size_t length, uint8_t short_kind, size_t short_most, uint8_t kind16);

  std::string out_;
};

}  // namespace kvkeep
