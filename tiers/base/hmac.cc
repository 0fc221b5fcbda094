#include "tiers/base/hmac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep {

namespace {

struct FreeMac {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

// HMAC() looks for its digest under a lock of the library each time, where the threads of a start
// meet. This looks once a thread. Its end forgets the last key.
EVP_MAC_CTX* ContextOfThread() {
  thread_local const std::unique_ptr<EVP_MAC_CTX, FreeMac> context = [] {
    EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    KVKEEP_CHECK(mac != nullptr);
    std::unique_ptr<EVP_MAC_CTX, FreeMac> made(EVP_MAC_CTX_new(mac));
    EVP_MAC_free(mac);  // the context keeps it
    std::string digest = "SHA256";
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), 0),
        OSSL_PARAM_construct_end()};
    KVKEEP_CHECK(made != nullptr && EVP_MAC_CTX_set_params(made.get(), params) == 1);
    return made;
  }();
  return context.get();
}

}  // namespace

void HmacSha256(std::span<const std::byte> key, std::span<const std::byte> text,
                std::span<std::byte, kHmacSha256Bytes> out) {
  EVP_MAC_CTX* const context = ContextOfThread();
  // No key would mean: that of before.
  static constexpr unsigned char kEmpty[1] = {};
  const auto* const key_bytes =
      key.empty() ? kEmpty : reinterpret_cast<const unsigned char*>(key.data());
  size_t size = 0;
  const bool done =
      EVP_MAC_init(context, key_bytes, key.size(), nullptr) == 1 &&
      EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(text.data()), text.size()) ==
          1 &&
      EVP_MAC_final(context, reinterpret_cast<unsigned char*>(out.data()), &size, out.size()) == 1;
  KVKEEP_CHECK(done && size == out.size());
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
