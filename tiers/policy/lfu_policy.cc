#include "tiers/policy/lfu_policy.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

int LfuPolicy::ListOfTouched(ChunkSlot /*slot*/, Node& node) {
  node.value = std::min<uint32_t>(node.value + 1, kMostValue);
  return ListAt(node.value);
}

int LfuPolicy::ListOfNew(Node& node, const NewChunk& /*chunk*/, MonotonicTime /*now*/) {
  node.value = 1;
  return ListAt(1);
}

void LfuPolicy::Erased(ChunkSlot /*slot*/, const Node& node, int from, EraseReason reason) {
  KVKEEP_CHECK(node.value >= 1);
  if (reason != EraseReason::kEvicted || from < 0) return;
  KVKEEP_CHECK(from < kMostLists);
  while (ListAt(0) != from) ++age_;
}

ChunkSlot LfuPolicy::Next() {
  for (uint64_t above = 0; above < kMostLists; ++above) {
    const ChunkSlot oldest = Oldest(ListAt(above));
    if (oldest != kNoSlot) return oldest;
  }
  return kNoSlot;
}

std::vector<int> LfuPolicy::ListOrder() const {
  std::vector<int> order;
  for (uint64_t above = 0; above < kMostLists; ++above) order.push_back(ListAt(above));
  return order;
}

}  // namespace kvkeep
