// HMAC-SHA256 (RFC 2104), by OpenSSL. A pure function.
#pragma once

#include <cstddef>
#include <span>

namespace kvkeep {

inline constexpr size_t kHmacSha256Bytes = 32;

void HmacSha256(std::span<const std::byte> key, std::span<const std::byte> text,
                std::span<std::byte, kHmacSha256Bytes> out);

}  // namespace kvkeep
