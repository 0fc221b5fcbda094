#include "tiers/base/hmac.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "tiers/base/check.h"

namespace kvkeep {

void HmacSha256(std::span<const std::byte> key, std::span<const std::byte> text,
                std::span<std::byte, kHmacSha256Bytes> out) {
  unsigned int size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(out.data()), &size);
  KVKEEP_CHECK(done != nullptr && size == out.size());
}

}  // namespace kvkeep
