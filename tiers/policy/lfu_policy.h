// LfuPolicy: least frequently used, aged, after M. Arlitt et al., "Evaluating Content Management
// Techniques for Web Proxy Caches" (LFU-DA), 1999.
//
// A chunk's priority is the number of requests for it since it came, plus the age of the policy at
// its last one; the age is the priority of the last victim. So a chunk that was asked for often,
// but long ago, goes in the end. The lowest priority goes first, and within a priority the least
// recently used chunk.
//
// The number counts to kMostValue. So all priorities lie so near the age that there is one list for
// each of them, in a ring. No ghosts: a chunk that comes back begins anew.
#pragma once

#include "tiers/policy/list_policy.h"

namespace kvkeep {

class LfuPolicy final : public ListPolicy {
 public:
  explicit LfuPolicy(const PolicyOptions& options) : ListPolicy(options, kMostLists) {}

 private:
  // Node::value is the number of requests.
  int ListOfTouched(ChunkSlot slot, Node& node) override;
  int ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime now) override;
  void Erased(ChunkSlot slot, const Node& node, int from, EraseReason reason) override;
  ChunkSlot Next() override;
  std::vector<int> ListOrder() const override;
  // Returns the list for a priority of the age plus `above`.
  int ListAt(uint64_t above) const { return static_cast<int>((age_ + above) % kMostLists); }

  uint64_t age_ = 0;
};

}  // namespace kvkeep
