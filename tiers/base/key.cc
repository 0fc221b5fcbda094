#include "tiers/base/key.h"

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#define XXH_INLINE_ALL  // a hash of known length is a few instructions
#include <xxhash.h>

#include <cstring>

namespace kvkeep {

template <typename Tag, size_t kBytes>
std::string Digest<Tag, kBytes>::ToHex() const {
  return absl::BytesToHexString(view());
}

template <typename Tag, size_t kBytes>
absl::StatusOr<Digest<Tag, kBytes>> Digest<Tag, kBytes>::FromBytes(absl::string_view raw) {
  if (raw.empty() || raw.size() > kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected 1 to ", kBytes, " bytes, got ", raw.size()));
  }
  Digest digest;
  std::memcpy(digest.bytes.data(), raw.data(), raw.size());
  return digest;
}

template <typename Tag, size_t kBytes>
absl::StatusOr<Digest<Tag, kBytes>> Digest<Tag, kBytes>::FromHex(absl::string_view hex) {
  const bool all_hex = hex.find_first_not_of("0123456789abcdefABCDEF") == absl::string_view::npos;
  if (hex.empty() || hex.size() % 2 != 0 || hex.size() > 2 * kBytes || !all_hex) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected 2 to ", 2 * kBytes, " hexadecimal digits, got '", hex, "'"));
  }
  return FromBytes(absl::HexStringToBytes(hex));
}

template struct Digest<struct ChunkKeyTag, 32>;
template struct Digest<struct NamespaceDigestTag, 16>;
template struct Digest<struct UuidTag, 16>;
template struct Digest<struct KeyIdTag, 16>;

std::string ChunkId::ToString() const {
  return absl::StrCat(ns.ToHex(), "/", key.ToHex(), "/", part.value());
}

uint64_t ChunkIdHash::NamespaceSeed(const NamespaceDigest& ns) const {
  return XXH3_64bits_withSeed(ns.bytes.data(), NamespaceDigest::kSize, seed);
}

uint64_t ChunkIdHash::InNamespace(uint64_t namespace_seed, const ChunkKey& key, PartId part) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // another seed for each part
  return XXH3_64bits_withSeed(key.bytes.data(), ChunkKey::kSize,
                              namespace_seed + part.value() * kOdd);
}

}  // namespace kvkeep
