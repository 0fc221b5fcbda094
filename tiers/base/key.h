// The identity of a chunk: namespace, key, part.
//
// A key is a digest made by the engine that covers the whole prefix; kvkeep never looks inside. A
// part says which rank, KV group or pipeline stage of that token chunk the bytes belong to. All
// types are plain values, comparable, and invalid (all zero) by default.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "tiers/base/strong_int.h"

namespace kvkeep {

// A fixed-size byte string with an order and a hexadecimal form.
template <typename Tag, size_t kBytes>
struct Digest {
  static constexpr size_t kSize = kBytes;
  std::array<uint8_t, kBytes> bytes{};

  auto operator<=>(const Digest&) const = default;
  // A defaulted one would call memcmp; with a known length it is a few instructions.
  bool operator==(const Digest& other) const {
    return __builtin_memcmp(bytes.data(), other.bytes.data(), kBytes) == 0;
  }
  template <typename H>
  friend H AbslHashValue(H h, const Digest& digest) {
    return H::combine(std::move(h), digest.bytes);
  }
  bool is_zero() const { return *this == Digest{}; }
  absl::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), kBytes}; }
  std::string ToHex() const;
  // Shorter input is padded with zero bytes at the end. InvalidArgument when empty or longer than
  // kBytes.
  static absl::StatusOr<Digest> FromBytes(absl::string_view raw);
  static absl::StatusOr<Digest> FromHex(absl::string_view hex);
};

// 32-byte digest of a prefix, made by the engine; shorter ones are zero padded.
using ChunkKey = Digest<struct ChunkKeyTag, 32>;
// 128-bit digest of a namespace's declaration.
using NamespaceDigest = Digest<struct NamespaceDigestTag, 16>;
// Names a store, a device or an arena for ever.
using Uuid = Digest<struct UuidTag, 16>;
// Names a key that images are encrypted with, without giving the key away.
using KeyId = Digest<struct KeyIdTag, 16>;

extern template struct Digest<struct ChunkKeyTag, 32>;
extern template struct Digest<struct NamespaceDigestTag, 16>;
extern template struct Digest<struct UuidTag, 16>;
extern template struct Digest<struct KeyIdTag, 16>;

using PartId = StrongInt<struct PartIdTag, uint32_t>;

// Random number of one daemon start / counter within it: together they name one placement for ever.
using Incarnation = StrongInt<struct IncarnationTag, uint64_t>;
using Generation = StrongInt<struct GenerationTag, uint64_t>;

struct ChunkId {
  NamespaceDigest ns;
  ChunkKey key;
  PartId part;

  auto operator<=>(const ChunkId&) const = default;
  std::string ToString() const;  // "ns/key/part", hexadecimal
};

// XXH3 over the whole identity with a secret seed, so that clients cannot choose colliding keys.
// Hashes in two steps, as many chunks are asked for in one namespace.
struct ChunkIdHash {
  uint64_t seed = 0;
  uint64_t NamespaceSeed(const NamespaceDigest& ns) const;
  static uint64_t InNamespace(uint64_t namespace_seed, const ChunkKey& key, PartId part);
  uint64_t operator()(const ChunkId& id) const {
    return InNamespace(NamespaceSeed(id.ns), id.key, id.part);
  }
};

}  // namespace kvkeep
