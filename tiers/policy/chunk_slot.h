// ChunkSlot and Fingerprint: the numbers by which policies know chunks.
//
// A ChunkSlot is a small dense number, unique among the chunks that exist at one moment, and
// another chunk's later. A fingerprint is a 64-bit hash of the chunk's identity that outlives
// eviction (for ghosts); two chunks may share one, so it may mislead a heuristic but never an
// invariant.
#pragma once

#include <cstdint>

#include "tiers/base/strong_int.h"

namespace kvkeep {

using ChunkSlot = StrongInt<struct ChunkSlotTag, uint32_t>;
inline constexpr ChunkSlot kNoSlot{UINT32_MAX};
using Fingerprint = StrongInt<struct FingerprintTag, uint64_t>;

}  // namespace kvkeep
