// Secret: 32 bytes that nobody else may know, wiped from memory when they go. Moved, never copied;
// there is no way to print one.
#pragma once

#include <openssl/crypto.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep {

class Secret {
 public:
  static constexpr size_t kBytes = 32;

  Secret() = default;
  explicit Secret(std::span<const std::byte, kBytes> bytes) {
    for (size_t i = 0; i < kBytes; ++i) bytes_[i] = bytes[i];
  }
  Secret(Secret&& other) noexcept : bytes_(other.bytes_) { other.Wipe(); }
  Secret& operator=(Secret&& other) noexcept {
    if (this == &other) return *this;
    bytes_ = other.bytes_;
    other.Wipe();
    return *this;
  }
  ~Secret() { Wipe(); }

  std::span<const std::byte, kBytes> bytes() const { return bytes_; }
  std::span<std::byte, kBytes> writable() { return bytes_; }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(bytes_.data()); }

 private:
  void Wipe() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

  std::array<std::byte, kBytes> bytes_{};
};

}  // namespace kvkeep
