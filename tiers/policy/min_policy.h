// MinPolicy: Belady's MIN, the yardstick. It knows the trace that will be played, and gives up the
// chunk that is asked for the latest, the newcomer included (bypass). Among chunks of one request
// it gives up the deepest. After L. A. Belady, "A study of replacement algorithms for a
// virtual-storage computer", 1966.
//
// For simulate only, because it must be told of exactly the requests of the trace, in order, with
// the ids as fingerprints. O(log n) a call. Nothing is parked here, and nothing is transient.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <set>
#include <utility>

#include "tiers/policy/eviction_policy.h"
#include "tiers/policy/trace.h"

namespace kvkeep {

class MinPolicy final : public EvictionPolicy {
 public:
  // `requests` outlive it.
  MinPolicy(std::span<const TraceRequest> requests, const PolicyOptions& options);

  void OnRequest(std::span<const ChainLink> links, MonotonicTime now, Slice slice) override;
  void OnInsert(const NewChunk& chunk, MonotonicTime now) override;
  void OnErase(ChunkSlot slot, EraseReason reason) override;
  std::optional<ChunkSlot> Victim() override;
  void Park(ChunkSlot slot) override;
  void Unpark(ChunkSlot slot) override;
  int64_t Recency(ChunkSlot slot) const override;
  int64_t Newest() const override { return INT64_MIN; }

 private:
  // When a chunk is asked for next, and how deep in that chain: the greater, the sooner it goes.
  using Use = std::pair<uint32_t, uint32_t>;
  static constexpr Use kNever = {UINT32_MAX, 0};

  void Place(ChunkSlot slot, Use use);

  std::vector<std::vector<Use>> next_uses_;        // by request and link: the next one after that
  size_t request_ = 0;                             // the next one
  absl::flat_hash_map<uint64_t, Use> of_request_;  // by id: of the last request's links
  std::vector<Use> uses_;                          // by slot
  std::set<std::pair<Use, ChunkSlot>> order_;
};

}  // namespace kvkeep
