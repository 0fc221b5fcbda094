#include "tiers/policy/s3fifo_policy.h"

#include <algorithm>

namespace kvkeep {

S3FifoPolicy::S3FifoPolicy(const PolicyOptions& options)
    : ListPolicy(options, 2),
      ghosts_(
          options.shares_memory_with == nullptr
              ? Ghosts(options.max_chunks)
              : Ghosts::Sharing(static_cast<S3FifoPolicy*>(options.shares_memory_with)->ghosts_)) {}

std::span<std::byte> S3FifoPolicy::MemoryDue() {
  const auto due = ListPolicy::MemoryDue();
  return due.empty() ? ghosts_.MemoryDue() : due;
}

int S3FifoPolicy::ListOfTouched(Node& node, int from) {
  if (from >= 0) {
    if ((node.value & kHits) < kMostHits) ++node.value;
    return -1;
  }
  if ((node.value & kOfMain) == 0) --small_;
  node.value = kOfMain;
  return kMain;
}

int S3FifoPolicy::ListOfNew(Node& node, const NewChunk& /*chunk*/, MonotonicTime /*now*/) {
  const bool back = ghosts_.Take(node.fingerprint).has_value();
  node.value = back ? kOfMain : 0;
  small_ += !back;
  return back ? kMain : kSmall;
}

void S3FifoPolicy::Erased(ChunkSlot /*slot*/, const Node& node, int /*from*/, EraseReason reason) {
  const bool of_small = (node.value & kOfMain) == 0;
  small_ -= of_small;
  if (reason == EraseReason::kEvicted && of_small) ghosts_.Add(kSmall, node.fingerprint);
  // More than one too many come of chunks that were removed: little by little.
  for (int i = 0; i < 2; ++i) {
    if (ghosts_.size(kSmall) > size() - small_) ghosts_.DropOldest(kSmall);
  }
}

ChunkSlot S3FifoPolicy::Next() {
  for (int steps = 0;; ++steps) {
    const bool from_small =
        Oldest(kSmall) != kNoSlot && (10 * small_ > size() || Oldest(kMain) == kNoSlot);
    const ChunkSlot oldest = Oldest(from_small ? kSmall : kMain);
    if (oldest == kNoSlot || steps == kVictimSteps) return oldest;
    Node& node = At(oldest);
    const uint32_t hits = node.value & kHits;
    if (hits < (from_small ? kWorthKeeping : 1)) return oldest;
    node.value = from_small ? kOfMain : node.value - 1;
    small_ -= from_small;
    Move(oldest, kMain);
  }
}

}  // namespace kvkeep
