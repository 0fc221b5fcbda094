#include "tiers/remote/object_name.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>

#include <algorithm>
#include <array>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/hmac.h"

namespace kvkeep {
namespace {

constexpr absl::string_view kVersion = "1/";
constexpr size_t kDigits = 40, kShardDigits = 3;
constexpr absl::string_view kHex = "0123456789abcdef";

}  // namespace

std::string NameOfObject(const Secret& name_key, const ObjectEpoch& epoch, const ChunkId& id) {
  constexpr size_t kBegunAt = 8 + NamespaceDigest::kSize + ChunkKey::kSize + 4;
  std::array<std::byte, kBegunAt + 8> text;
  StoreAt(text.data(), epoch.configured);
  StoreAt(text.data() + 8, id.ns.bytes);
  StoreAt(text.data() + 8 + NamespaceDigest::kSize, id.key.bytes);
  StoreAt(text.data() + 8 + NamespaceDigest::kSize + ChunkKey::kSize, id.part.value());
  StoreAt(text.data() + kBegunAt, epoch.begun);
  const size_t bytes = epoch.begun == 0 ? kBegunAt : text.size();
  std::array<std::byte, kHmacSha256Bytes> digest;
  HmacSha256(name_key.bytes(), std::span(text).first(bytes), digest);
  const std::string digits = absl::BytesToHexString(AsText(std::span(digest).first(kDigits / 2)));
  return absl::StrCat(kVersion, digits.substr(0, kShardDigits), "/", digits);
}

std::string ShardOfObjects(uint32_t shard) {
  KVKEEP_CHECK(shard < kObjectShards);
  return absl::StrFormat("%s%03x/", kVersion, shard);
}

bool IsNameOfObject(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kVersion)) return false;
  const absl::string_view digits = name.substr(std::min(name.size(), kShardDigits + 1));
  return digits.size() == kDigits && digits.find_first_not_of(kHex) == absl::string_view::npos &&
         name.substr(0, kShardDigits) == digits.substr(0, kShardDigits) &&
         name[kShardDigits] == '/';
}

}  // namespace kvkeep
