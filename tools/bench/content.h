// What the benchmark stores: keys that carry the number of their payload, and payloads made from
// that number (tools/kvkeep/generator.h). Whoever has a key can tell whether any part of the bytes
// under it is right, without having kept them.
//
// Several keys may have the same payload: a put then needs no new bytes, only a new key. Free
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tiers/base/key.h"

namespace kvkeep::bench {

// Chunk number `sequence` of a run: its key is spread like a digest and names `payload`.
ChunkKey MakeKey(uint64_t seed, uint64_t sequence, uint64_t payload);
uint64_t PayloadOf(const ChunkKey& key);

void FillPayload(uint64_t seed, uint64_t payload, std::span<std::byte> out);
// How many of `got`, bytes from `offset` (a multiple of 8) on of what lies under `key`, are wrong.
uint64_t CountWrong(uint64_t seed, const ChunkKey& key, std::span<const std::byte> got,
                    uint64_t offset = 0);

}  // namespace kvkeep::bench
