// LruPolicy: the least recently used chunk goes first, with a request's chunks touched tail first.
// One list; everything else is ListPolicy's.
#pragma once

#include "tiers/policy/list_policy.h"

namespace kvkeep {

class LruPolicy final : public ListPolicy {
 public:
  explicit LruPolicy(const PolicyOptions& options) : ListPolicy(options, 1) {}

 private:
  int ListOfTouched(ChunkSlot /*slot*/, Node& /*node*/) override { return 0; }
  int ListOfNew(Node& /*node*/, const NewChunk& /*chunk*/, MonotonicTime /*now*/) override {
    return 0;
  }
  void Erased(ChunkSlot /*slot*/, const Node& /*node*/, int /*from*/,
              EraseReason /*reason*/) override {}
  ChunkSlot Next() override { return Oldest(0); }
  std::vector<int> ListOrder() const override { return {0}; }
};

}  // namespace kvkeep
