// SimulateTrace: the prefix hit ratio that an eviction policy would have had on a trace.
//
// It runs the very policy classes that the store runs, over a tier that is nothing but a number of
// chunks of equal size, never leased. Deterministic; free function, thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tiers/policy/trace.h"

namespace kvkeep {

struct TraceResult {
  uint64_t requests = 0;
  uint64_t chunk_refs = 0;          // hash_ids of all requests
  uint64_t leading_hit_chunks = 0;  // of these, in the run of resident chunks at a chain's head
  double hit_ratio = 0;             // leading_hit_chunks / chunk_refs; 0 when there are none
};

// Each request counts its leading run, tells the policy its whole chain, then inserts what is
// absent, head first, until a newcomer is itself the victim: deeper chunks would be of no use.
// So a request longer than the tier keeps its head. InvalidArgument: `policy` is not in
// SimulatedPolicyNames(), or `capacity_chunks` is not 1 to kMaxSimulatedChunks.
inline constexpr uint32_t kMaxSimulatedChunks = uint32_t{1} << 28;
absl::StatusOr<TraceResult> SimulateTrace(std::span<const TraceRequest> requests,
                                          absl::string_view policy, uint64_t capacity_chunks);

// Those of EvictionPolicyNames(), and "min": Belady's, which no daemon can have (min_policy.h).
std::vector<std::string> SimulatedPolicyNames();

}  // namespace kvkeep
