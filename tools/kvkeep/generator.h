// The payloads of a replay: every byte follows from (seed, id), so that whoever gets a chunk back
// can tell whether it is right without having kept it.
//
// Not a cryptographic stream; made to be generated and compared at several GB/s. Free functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvkeep::tools {

// Fills `out`, of any size, with the bytes of (seed, id). Shorter payloads are prefixes of longer
// ones.
void GeneratePayload(uint64_t seed, uint64_t id, std::span<std::byte> out);
// Counts the bytes of `got` that differ from (seed, id)'s from `offset` on, a multiple of 8.
uint64_t CountWrongBytes(uint64_t seed, uint64_t id, std::span<const std::byte> got,
                         uint64_t offset = 0);
// A number that depends on both, for choices that must repeat.
uint64_t MixIds(uint64_t seed, uint64_t id);

}  // namespace kvkeep::tools
