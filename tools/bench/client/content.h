// Content of the benchmark's chunks: keys that carry the number of their payload, and payloads made
// from the number (tools/kvkeep/generator.h). A key alone is enough to check any part of the bytes
// under it.
//
// Several keys may have the same payload: a put then needs no new bytes, only a new key. Free
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tiers/base/key.h"
#include "tools/kvkeep/generator.h"

namespace kvkeep::bench {

inline constexpr size_t kPayloadAt = 16;  // of a key, after 16 bytes that look like a digest
inline constexpr size_t kSequenceAt = 24;

// Returns the key of chunk number `sequence` of a run. It is spread like a digest and names //
// `payload`.
inline ChunkKey MakeKey(uint64_t seed, uint64_t sequence, uint64_t payload) {
  ChunkKey key;
  tools::GeneratePayload(~seed, sequence, std::as_writable_bytes(std::span(key.bytes)));
  std::memcpy(key.bytes.data() + kPayloadAt, &payload, sizeof(payload));
  std::memcpy(key.bytes.data() + kSequenceAt, &sequence, sizeof(sequence));
  return key;
}

inline uint64_t PayloadOf(const ChunkKey& key) {
  uint64_t payload = 0;
  std::memcpy(&payload, key.bytes.data() + kPayloadAt, sizeof(payload));
  return payload;
}

inline void FillPayload(uint64_t seed, uint64_t payload, std::span<std::byte> out) {
  tools::GeneratePayload(seed, payload, out);
}

// Returns how many of `got`, the bytes under `key` from `offset` (a multiple of 8) on, are wrong.
inline uint64_t CountWrong(uint64_t seed, const ChunkKey& key, std::span<const std::byte> got,
                           uint64_t offset = 0) {
  return tools::CountWrongBytes(seed, PayloadOf(key), got, offset);
}

}  // namespace kvkeep::bench
