#include "tiers/base/tenant_tag.h"

#include <absl/strings/str_cat.h>
#include <openssl/sha.h>

#include <cstring>
#include <string>

namespace kvkeep {

uint32_t TenantTagOf(absl::string_view tenant) {
  const std::string flat = absl::StrCat("kvkeep tenant ", tenant);
  unsigned char sha[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(flat.data()), flat.size(), sha);
  uint32_t tag;
  std::memcpy(&tag, sha, sizeof(tag));
  return tag;
}

uint32_t TenantTagOf(const NamespaceDigest& ns) {
  uint32_t tag;
  std::memcpy(&tag, ns.bytes.data(), sizeof(tag));
  return tag;
}

}  // namespace kvkeep
