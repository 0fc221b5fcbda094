// Checks that every transport makes of a call before it asks the daemon, and values computed from a
// put chunk. Internal; no state.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "client/values/types.h"

namespace kvkeep::client {

inline size_t PartCount(const NamespaceSpec& spec, Parts parts) {
  return parts.empty() ? spec.parts : parts.size();
}
// INVALID_ARGUMENT names the field and its limit. REQUIRES: no NeedsSlices (split_calls.h).
absl::Status CheckKeys(Keys keys, size_t parts, const ServerLimits& limits);
absl::Status CheckDestinations(const GetOptions& options, size_t chunks);
// Returns how long a get that begins now has the daemon look beyond the node.
std::chrono::microseconds RemoteWaitOf(const GetOptions& options,
                                       std::chrono::steady_clock::time_point deadline);
absl::Status LeaseIsDead();  // the error of a call under a dead lease

// Returns why the daemon would surely reject the chunk; empty if it may accept it.
struct PutFacts {
  uint64_t payload_bytes = 0;
  uint32_t part = 0;
  size_t metadata_bytes = 0;
};
std::string WhyRejected(const PutFacts& chunk, const NamespaceSpec& spec);
std::string WhyRejected(const PutChunk& chunk, const NamespaceSpec& spec);
uint64_t PayloadBytes(const PutChunk& chunk);
uint64_t PayloadChecksum(const PutChunk& chunk);  // XXH3-64

}  // namespace kvkeep::client
