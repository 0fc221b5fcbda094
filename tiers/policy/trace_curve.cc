#include "tiers/policy/trace_curve.h"

#include <absl/container/flat_hash_set.h>

#include <chrono>
#include <vector>

#include "tiers/policy/reuse_distances.h"

namespace kvkeep {

TraceFacts FactsOf(std::span<const TraceRequest> requests) {
  TraceFacts facts{.requests = requests.size()};
  absl::flat_hash_set<uint64_t> distinct;
  for (const TraceRequest& request : requests) {
    facts.chunk_refs += request.hash_ids.size();
    facts.input_tokens += request.input_tokens;
    distinct.insert(request.hash_ids.begin(), request.hash_ids.end());
  }
  facts.distinct_chunks = distinct.size();
  if (!requests.empty()) {
    facts.seconds =
        std::chrono::duration<double>(requests.back().timestamp - requests.front().timestamp)
            .count();
  }
  return facts;
}

ReuseCurve CurveOf(std::span<const TraceRequest> requests, uint64_t chunk_bytes,
                   uint32_t most_keys) {
  ReuseDistances distances({.most_keys = most_keys});
  std::vector<EvictionPolicy::ChainLink> chain;
  for (const TraceRequest& request : requests) {
    chain.clear();
    for (const uint64_t id : request.hash_ids) chain.push_back({.fingerprint = Fingerprint(id)});
    distances.OnRequest(chain);
    for (const uint64_t id : request.hash_ids) {
      distances.OnStored(Fingerprint(id), chunk_bytes);
    }
  }
  ReuseCurve curve = distances.curve();
  curve.cold = curve.first_stored_chunks = static_cast<double>(FactsOf(requests).distinct_chunks);
  curve.first_stored_bytes = curve.cold * static_cast<double>(chunk_bytes);
  return curve;
}

}  // namespace kvkeep
