// SimulatedTier: a tier that only counts chunks, of equal size and never leased, under a real
// eviction policy. Not thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tiers/policy/eviction_policy.h"

namespace kvkeep {

class SimulatedTier {
 public:
  // The policy's max_chunks is at least capacity + 1: a newcomer is in before the victim is out.
  SimulatedTier(std::unique_ptr<EvictionPolicy> policy, uint32_t capacity);

  bool Contains(uint64_t id) const { return slots_.contains(id); }
  // Tells the policy of a request for that chain, head first.
  void Tell(std::span<const uint64_t> ids, MonotonicTime now);
  // Brings in a chunk that is absent. Returns the chunk that had to go for it, maybe itself; none:
  // there was room. `parent` counts if it is here.
  std::optional<uint64_t> Insert(uint64_t id, std::optional<uint64_t> parent, MonotonicTime now);

 private:
  ChunkSlot Find(uint64_t id) const;
  ChunkSlot TakeSlot(uint64_t id);

  std::unique_ptr<EvictionPolicy> policy_;
  uint32_t capacity_;
  absl::flat_hash_map<uint64_t, ChunkSlot> slots_;  // by id: the chunks in the tier
  std::vector<uint64_t> ids_;                       // by slot
  std::vector<ChunkSlot> free_slots_;
  std::vector<EvictionPolicy::ChainLink> chain_;  // of the request being told
};

}  // namespace kvkeep
