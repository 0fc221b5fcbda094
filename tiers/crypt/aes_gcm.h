// AesGcm: encrypts or decrypts one message by AES-256-GCM (NIST SP 800-38D), in runs of any size.
// By OpenSSL.
//
// The caller must keep GCM safe: never use an IV twice under one key, and use no decrypted byte
// before Matches has returned true. Not thread-safe.
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

  // Processes the next `from.size()` bytes of the message into `to`: in place, or without overlap.
  // At most 1 GiB a call.
  void Append(std::span<const std::byte> from, std::byte* to);
  // Call one of them once, after the last byte. Tag returns the tag of an encryption; Matches
  // returns whether `tag` is that of a decryption.
  CipherTag Tag();
  bool Matches(const CipherTag& tag);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace kvkeep
