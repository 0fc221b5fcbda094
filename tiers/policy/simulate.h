// Simulates eviction, admission and write policies on a trace.
//
// Runs the store's own policy classes over tiers that only count chunks, of equal size and never
// leased. Deterministic; free functions, thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tiers/policy/admission_policy.h"
#include "tiers/policy/prefill_cost.h"
#include "tiers/policy/simulated_bucket.h"
#include "tiers/policy/simulated_hints.h"
#include "tiers/policy/trace.h"

namespace kvkeep {

struct TraceResult {
  uint64_t requests = 0;
  uint64_t chunk_refs = 0;          // hash_ids of all requests, and their partial_chunks
  uint64_t leading_hit_chunks = 0;  // of these, in the run of resident chunks at a chain's head
  double hit_ratio = 0;             // leading_hit_chunks / chunk_refs; 0 when there are none
  double prefill_seconds = 0;       // to compute all of them
  double seconds_saved = 0;         // of these, by the leading hits: an unbroken prefix
};

// Each request counts its leading run, tells the policy its whole chain, then inserts absent
// chunks, head first, until a newcomer is itself the victim: deeper chunks would be of no use. So a
// request longer than the tier keeps its head. InvalidArgument: `policy` is not in
// SimulatedPolicyNames(), or `capacity_chunks` is not 1 to kMaxSimulatedChunks.
inline constexpr uint32_t kMaxSimulatedChunks = uint32_t{1} << 28;
// `buckets` lie behind the tier, each as if it were alone; `cost` is for the result's seconds.
absl::StatusOr<TraceResult> SimulateTrace(std::span<const TraceRequest> requests,
                                          absl::string_view policy, uint64_t capacity_chunks,
                                          std::span<SimulatedBucket* const> buckets = {},
                                          const PrefillCost& cost = {});

struct HintResult {
  TraceResult trace;
  SimulatedHints::Counters hints;
};

// As SimulateTrace, where somebody gives the tier hints. InvalidArgument names the option.
absl::StatusOr<HintResult> SimulateHints(std::span<const TraceRequest> requests,
                                         absl::string_view policy, uint64_t capacity_chunks,
                                         const HintOptions& options);

// Returns EvictionPolicyNames() and "min": Belady's, which no daemon can have (min_policy.h).
std::vector<std::string> SimulatedPolicyNames();

struct TiersOptions {
  std::string g2_policy = "lru", g3_policy = "lru";  // of EvictionPolicyNames()
  uint64_t g2_chunks = 0, g3_chunks = 0;             // 1 to kMaxSimulatedChunks
  std::string admission = "all";                     // of AdmissionPolicyNames()
  AdmissionOptions admission_options;
  // When a chunk is offered to G3: eager, as it comes and at each use; on_evict, as it leaves G2,
  // which the daemon does not offer: a what-if.
  std::string write_policy = "eager";
  uint64_t chunk_bytes = 1;
  PrefillCost cost;
  std::vector<SimulatedBucket*> buckets;  // behind both, each as if it were alone
};

struct TiersResult {
  TraceResult trace;           // a hit is one in either tier
  uint64_t g2_hit_chunks = 0;  // of the leading ones; the others came from G3
  uint64_t g3_written_bytes = 0;
};

// Simulates two tiers. Chunks of a request that are in G3 alone, or in neither tier, come into G2;
// chunks that are not in G3 are offered to it. InvalidArgument names the option.
absl::StatusOr<TiersResult> SimulateTiers(std::span<const TraceRequest> requests,
                                          const TiersOptions& options);

}  // namespace kvkeep
