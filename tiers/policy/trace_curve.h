// Computes, in one pass, what a trace asks for and the hit ratio of an LRU of any size on it. For
// traces where simulate.h, which runs one size at a time, would take too long.
//
// Free functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "tiers/policy/reuse_curve.h"
#include "tiers/policy/trace.h"

namespace kvkeep {

struct TraceFacts {
  uint64_t requests = 0, chunk_refs = 0, input_tokens = 0;
  uint64_t distinct_chunks = 0;
  double seconds = 0;  // from the first request to the last
};
TraceFacts FactsOf(std::span<const TraceRequest> requests);

// Estimates by a sample of `most_keys` chunks, each of `chunk_bytes`, stored when first asked for.
// Counts, and does not sample, how many chunks are asked for once.
ReuseCurve CurveOf(std::span<const TraceRequest> requests, uint64_t chunk_bytes,
                   uint32_t most_keys);

}  // namespace kvkeep
