// AesGcm: one message under AES-256-GCM (NIST SP 800-38D), its bytes in runs of any size. OpenSSL.
//
// The caller answers for what makes GCM safe: never the same IV twice under one key, and no use of
// what was decrypted before Matches said so. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "tiers/base/image.h"
#include "tiers/crypt/secret.h"

struct evp_cipher_ctx_st;

namespace kvkeep {

using GcmIv = std::array<std::byte, 12>;

class AesGcm {
 public:
  enum class Direction { kEncrypt, kDecrypt };

  // `associated` is authenticated with the message, but no part of it.
  AesGcm(Direction direction, const Secret& key, const GcmIv& iv,
         std::span<const std::byte> associated);
  AesGcm(AesGcm&&) noexcept = default;

  // The next `from.size()` bytes of the message. In place when `to` is where they are; else the two
  // do not overlap. At most 1 GiB a call.
  void Append(std::span<const std::byte> from, std::byte* to);
  // After the last byte, once. Of an encryption: the tag; of a decryption: whether it is this one.
  CipherTag Tag();
  bool Matches(const CipherTag& tag);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace kvkeep
