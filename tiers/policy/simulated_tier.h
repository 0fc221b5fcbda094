// SimulatedTier: a tier that only counts chunks, of equal size and never leased, under a real
// eviction policy. Not thread-safe.
//
// A victim is a chunk that was demoted, if there is one, else the policy's first that is not
// retained.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <deque>
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

  uint32_t capacity() const { return capacity_; }
  uint64_t retained() const { return retained_.size(); }
  bool IsRetained(uint64_t id) const { return retained_.contains(id); }
  // Keeps a chunk that is here until Release was called as often. REQUIRES: fewer than `capacity`
  // chunks are retained with it.
  void Retain(uint64_t id);
  void Release(uint64_t id);
  // The chunk goes first, after those that were demoted before it, until it is asked for. Does
  // nothing to a chunk that is retained or absent.
  void Demote(uint64_t id);

 private:
  ChunkSlot Find(uint64_t id) const;
  ChunkSlot TakeSlot(uint64_t id);
  ChunkSlot Victim();

  std::unique_ptr<EvictionPolicy> policy_;
  uint32_t capacity_;
  absl::flat_hash_map<uint64_t, ChunkSlot> slots_;  // by id: the chunks in the tier
  std::vector<uint64_t> ids_;                       // by slot
  std::vector<ChunkSlot> free_slots_;
  std::vector<EvictionPolicy::ChainLink> chain_;  // of the request being told
  absl::flat_hash_map<uint64_t, uint32_t> retained_;  // by id: how often
  // In the order of Demote. An entry whose number is not the id's in `demoted_` is void.
  std::deque<std::pair<uint64_t, uint64_t>> demotions_;
  absl::flat_hash_map<uint64_t, uint64_t> demoted_;  // by id: the number of its demotion
  uint64_t last_demotion_ = 0;
};

}  // namespace kvkeep
