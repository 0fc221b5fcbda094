// RandomSource: the seam to randomness (incarnations, tokens, UUIDs, hash seeds). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep {

class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual void Fill(std::span<std::byte> out) = 0;

  uint64_t NextU64();
  // A digest-like value (Uuid, session token) filled with random bytes.
  template <typename T>
  T Next() {
    T value;
    Fill(std::as_writable_bytes(std::span(value.bytes)));
    return value;
  }
};

// The kernel's cryptographic generator (getrandom). Lives for ever.
RandomSource* RealRandom();

}  // namespace kvkeep
