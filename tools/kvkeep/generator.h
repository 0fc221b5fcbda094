// The payloads of a replay: every byte follows from (seed, id), so a reader can check a chunk
// without a copy of it.
//
// It is no cryptographic stream: it can be generated and compared at several GB/s. Free functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep::tools {

// Fills `out`, of any size, with the bytes of (seed, id). Shorter payloads are prefixes of longer
// ones.
void GeneratePayload(uint64_t seed, uint64_t id, std::span<std::byte> out);
// Counts the bytes of `got` that differ from (seed, id)'s bytes from `offset` on, a multiple of 8.
uint64_t CountWrongBytes(uint64_t seed, uint64_t id, std::span<const std::byte> got,
                         uint64_t offset = 0);
// Returns a number that depends on both, for choices that must be repeatable.
uint64_t MixIds(uint64_t seed, uint64_t id);

}  // namespace kvkeep::tools
