#include "tiers/policy/arc_policy.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

ArcPolicy::ArcPolicy(const PolicyOptions& options)
    : ListPolicy(options, 2, Keeps::kFingerprintsToo),
      ghosts_(options.shares_memory_with != nullptr
                  ? Ghosts::Sharing(static_cast<ArcPolicy*>(options.shares_memory_with)->ghosts_)
                  : Ghosts(options.max_chunks, toucher())) {}

int ArcPolicy::ListOfTouched(ChunkSlot /*slot*/, Node& node) {
  --chunks_[node.value];
  ++chunks_[kAgain];
  node.value = kAgain;
  return kAgain;
}

int ArcPolicy::ListOfNew(Node& node, const NewChunk& chunk, MonotonicTime /*now*/) {
  const uint32_t once = std::max(1u, ghosts_.size(kOnce));
  const uint32_t again = std::max(1u, ghosts_.size(kAgain));
  const std::optional<int> ghost = ghosts_.Take(chunk.fingerprint);
  if (ghost == kOnce) {
    target_ = std::min<uint32_t>(target_ + std::max(1u, again / once), size());
  } else if (ghost == kAgain) {
    target_ -= std::min(target_, std::max(1u, once / again));
  }
  node.value = ghost.has_value() ? kAgain : kOnce;
  ++chunks_[node.value];
  KVKEEP_CHECK(chunks_[kOnce] + chunks_[kAgain] == size());
  return static_cast<int>(node.value);
}

void ArcPolicy::Erased(ChunkSlot slot, const Node& node, int /*from*/, EraseReason reason) {
  KVKEEP_CHECK(node.value <= kAgain && chunks_[node.value] > 0);
  --chunks_[node.value];
  KVKEEP_CHECK(chunks_[kOnce] + chunks_[kAgain] == size());
  const auto list = static_cast<int>(node.value);
  if (reason == EraseReason::kEvicted) ghosts_.Add(list, FingerprintOf(slot));
  TrimGhosts();
}

// Limits chunks and ghosts of the first list to the number of all chunks, and of both lists to
// twice that. Removals may leave a larger excess, which goes little by little.
void ArcPolicy::TrimGhosts() {
  for (int i = 0; i < 2; ++i) {
    const uint64_t once = ghosts_.size(kOnce), again = ghosts_.size(kAgain);
    if (once > 0 && chunks_[kOnce] + once > size()) {
      ghosts_.DropOldest(kOnce);
    } else if (once + again > size()) {
      ghosts_.DropOldest(again > 0 ? kAgain : kOnce);
    }
  }
}

int ArcPolicy::NextList() const {
  // The paper decides before the newcomer is in, which here is among the chunks already.
  const int list = chunks_[kOnce] > target_ + 1 ? kOnce : kAgain;
  return Oldest(list) != kNoSlot ? list : kAgain - list;
}

ChunkSlot ArcPolicy::Next() { return Oldest(NextList()); }

std::vector<int> ArcPolicy::ListOrder() const { return {NextList(), kAgain - NextList()}; }

}  // namespace kvkeep
