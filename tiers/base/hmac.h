// HMAC-SHA256 (RFC 2104), by OpenSSL, and keys derived by it: HKDF (RFC 5869). Pure functions.
#pragma once

#include <cstddef>
#include <span>

namespace kvkeep {

inline constexpr size_t kHmacSha256Bytes = 32;

void HmacSha256(std::span<const std::byte> key, std::span<const std::byte> text,
                std::span<std::byte, kHmacSha256Bytes> out);

// Derives a key; another `info` gives an independent one. REQUIRES: at most 255 x 32 bytes.
void HkdfSha256(std::span<const std::byte> secret, std::span<const std::byte> salt,
                std::span<const std::byte> info, std::span<std::byte> out);

}  // namespace kvkeep
