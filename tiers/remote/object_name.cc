#include "tiers/remote/object_name.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include <array>

#include "tiers/base/bytes.h"
#include "tiers/base/hmac.h"

namespace kvkeep {

std::string NameOfObject(const Secret& name_key, uint64_t epoch, const ChunkId& id) {
  std::array<std::byte, 8 + NamespaceDigest::kSize + ChunkKey::kSize + 4> text;
  StoreAt(text.data(), epoch);
  StoreAt(text.data() + 8, id.ns.bytes);
  StoreAt(text.data() + 8 + NamespaceDigest::kSize, id.key.bytes);
  StoreAt(text.data() + 8 + NamespaceDigest::kSize + ChunkKey::kSize, id.part.value());
  std::array<std::byte, kHmacSha256Bytes> digest;
  HmacSha256(name_key.bytes(), text, digest);
  const std::string digits = absl::BytesToHexString(AsText(std::span(digest).first(20)));
  return absl::StrCat("1/", digits.substr(0, 3), "/", digits);
}

}  // namespace kvkeep
