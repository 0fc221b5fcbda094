// Writes the outcomes of a put's or get's chunks, in C: the same for memory of the host and of a
// GPU.
//
// Writes at most as many as the caller's array holds. Stateless.
#pragma once

#include <span>
#include <string>

#include "client/c/kvkeep.h"
#include "client/values/types.h"

namespace kvkeep::client {

// `metadata`: the callers' rooms, one a chunk, or null. A HIT whose metadata does not fit is
// TOO_SMALL.
void WriteOutcomes(const GetResult& got, std::span<kvkeep_get_outcome> outcomes,
                   const kvkeep_buffer* metadata);
// Returns why the first rejected chunk was rejected, or "".
std::string WriteOutcomes(const PutResult& put, std::span<uint32_t> outcomes);

}  // namespace kvkeep::client
