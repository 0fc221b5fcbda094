#include "tiers/base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep {

void HmacSha256(std::span<const std::byte> key, std::span<const std::byte> text,
                std::span<std::byte, kHmacSha256Bytes> out) {
  KVKEEP_CHECK(key.size() <= INT_MAX);
  unsigned int size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(out.data()), &size);
  KVKEEP_CHECK(done != nullptr && size == out.size());
}

void HkdfSha256(std::span<const std::byte> secret, std::span<const std::byte> salt,
                std::span<const std::byte> info, std::span<std::byte> out) {
  KVKEEP_CHECK(out.size() <= 255 * kHmacSha256Bytes);
  std::array<std::byte, kHmacSha256Bytes> extracted, block;
  HmacSha256(salt, secret, extracted);
  std::vector<std::byte> text;
  for (uint8_t number = 1; !out.empty(); ++number) {
    if (number > 1) text.assign(block.begin(), block.end());
    text.insert(text.end(), info.begin(), info.end());
    text.push_back(std::byte{number});
    HmacSha256(extracted, text, block);
    OPENSSL_cleanse(text.data(), text.size());
    text.clear();
    const size_t bytes = std::min(out.size(), block.size());
    std::copy_n(block.begin(), bytes, out.begin());
    out = out.subspan(bytes);
  }
  OPENSSL_cleanse(extracted.data(), extracted.size());
  OPENSSL_cleanse(block.data(), block.size());
}

}  // namespace kvkeep
