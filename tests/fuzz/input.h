// Reads the bytes of a fuzz input, front to back; zeros after the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvkeep {

class InputReader {
 public:
  explicit InputReader(std::span<const uint8_t> left) : left_(left) {}

  bool done() const { return left_.empty(); }
  uint8_t U8() {
    if (left_.empty()) return 0;
    const uint8_t value = left_[0];
    left_ = left_.subspan(1);
    return value;
  }
  uint16_t U16() {
    const uint8_t low = U8();
    return static_cast<uint16_t>(low | U8() << 8);
  }
  uint64_t U64() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= uint64_t{U8()} << (8 * i);
    return value;
  }
  std::span<const uint8_t> Take(size_t count) {
    const auto taken = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  std::vector<std::byte> Bytes(size_t count) {
    const auto taken = std::as_bytes(Take(count));
    return {taken.begin(), taken.end()};
  }
  std::span<const uint8_t> Rest() { return Take(left_.size()); }
  std::string Text(size_t count) {
    const auto taken = Take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  std::string RestText() { return Text(left_.size()); }

 private:
  std::span<const uint8_t> left_;
};

}  // namespace kvkeep
