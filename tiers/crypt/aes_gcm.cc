#include "tiers/crypt/aes_gcm.h"

#include <openssl/evp.h>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

const unsigned char* In(const void* bytes) { return static_cast<const unsigned char*>(bytes); }
unsigned char* Out(void* bytes) { return static_cast<unsigned char*>(bytes); }

}  // namespace

void AesGcm::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

AesGcm::AesGcm(Direction direction, const Secret& key, const GcmIv& iv,
               std::span<const std::byte> associated)
    : context_(EVP_CIPHER_CTX_new()) {
  // 12 bytes are the length that GCM has for an IV unless told otherwise.
  KVKEEP_CHECK(context_ != nullptr);
  KVKEEP_CHECK(EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, key.data(),
                                 In(iv.data()), direction == Direction::kEncrypt ? 1 : 0) == 1);
  int done = 0;
  KVKEEP_CHECK(associated.size() <= kMiB);
  KVKEEP_CHECK(EVP_CipherUpdate(context_.get(), nullptr, &done, In(associated.data()),
                                static_cast<int>(associated.size())) == 1);
}

void AesGcm::Append(std::span<const std::byte> from, std::byte* to) {
  KVKEEP_CHECK(from.size() <= kGiB);
  const auto in = reinterpret_cast<uintptr_t>(from.data()), out = reinterpret_cast<uintptr_t>(to);
  KVKEEP_CHECK(in == out || in + from.size() <= out || out + from.size() <= in);
  int done = 0;
  KVKEEP_CHECK(EVP_CipherUpdate(context_.get(), Out(to), &done, In(from.data()),
                                static_cast<int>(from.size())) == 1);
  KVKEEP_CHECK(static_cast<size_t>(done) == from.size());
}

CipherTag AesGcm::Tag() {
  CipherTag tag;
  int none = 0;
  KVKEEP_CHECK(EVP_CipherFinal_ex(context_.get(), Out(tag.data()), &none) == 1);
  KVKEEP_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG,
                                   static_cast<int>(tag.size()), tag.data()) == 1);
  return tag;
}

bool AesGcm::Matches(const CipherTag& tag) {
  CipherTag expected = tag;
  KVKEEP_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG,
                                   static_cast<int>(expected.size()), expected.data()) == 1);
  unsigned char nothing[16];
  int none = 0;
  return EVP_CipherFinal_ex(context_.get(), nothing, &none) == 1;
}

}  // namespace kvkeep
