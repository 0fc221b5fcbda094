#include "tiers/remote/sealed_header.h"

#include <algorithm>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/hmac.h"
#include "tiers/crypt/aes_gcm.h"

namespace kvkeep {
namespace {

constexpr size_t kNonceBytes = ImageNonce::kSize, kTagBytes = sizeof(CipherTag);
constexpr size_t kSealedBytes = kHeaderBytes - kNonceBytes - kTagBytes;

AesGcm SealOf(AesGcm::Direction direction, const Secret& header_key, HeaderPage page) {
  Secret key;
  HmacSha256(header_key.bytes(), page.subspan(kSealedBytes, kNonceBytes), key.writable());
  return AesGcm(direction, key, GcmIv{}, {});
}

}  // namespace

void SealHeader(const Secret& header_key, RandomSource* random, HeaderPage page) {
  KVKEEP_CHECK(std::all_of(page.begin() + kSealedBytes, page.end(),
                           [](std::byte byte) { return byte == std::byte{0}; }));
  random->Fill(page.subspan(kSealedBytes, kNonceBytes));
  AesGcm seal = SealOf(AesGcm::Direction::kEncrypt, header_key, page);
  seal.Append(page.first(kSealedBytes), page.data());
  StoreAt(page.data() + kSealedBytes + kNonceBytes, seal.Tag());
}

bool OpenHeader(const Secret& header_key, HeaderPage page) {
  AesGcm seal = SealOf(AesGcm::Direction::kDecrypt, header_key, page);
  seal.Append(page.first(kSealedBytes), page.data());
  const bool ours = seal.Matches(LoadAt<CipherTag>(page.data() + kSealedBytes + kNonceBytes));
  const auto rest = ours ? page.subspan(kSealedBytes) : page.subspan(0);
  std::fill(rest.begin(), rest.end(), std::byte{0});
  return ours;
}

}  // namespace kvkeep
