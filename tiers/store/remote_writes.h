// RemoteWrites: which chunks are to be written beyond the node, in the order in which they were
// offered, and which are being written.
//
// A chunk waits by its name: it may be gone, or another one, when its turn comes. While it is
// written its slot is pinned by the caller. The core's lock protects it.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "tiers/base/check.h"
#include "tiers/base/key.h"
#include "tiers/base/units.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep::store_internal {

class RemoteWrites {
 public:
  static constexpr size_t kMostQueued = 4096;
  static constexpr uint64_t kMostBytesInFlight = 64 * kMiB;  // or one image, however large

  // False: the queue is full, and this one is dropped.
  bool Offer(const ChunkId& id) {
    if (queue_.size() >= kMostQueued) return false;
    queue_.push_back(id);
    return true;
  }
  bool anyone_waits() const { return !queue_.empty(); }
  // REQUIRES: anyone_waits().
  const ChunkId& next() const { return queue_.front(); }
  void Pop() { queue_.pop_front(); }
  void ForgetQueue() { queue_.clear(); }

  bool MayBegin(uint64_t bytes) const {
    return in_flight_bytes_ == 0 || in_flight_bytes_ + bytes <= kMostBytesInFlight;
  }
  void Begin(ChunkSlot slot, const ChunkId& id, uint64_t bytes) {
    KVKEEP_CHECK(writing_.emplace(slot, id).second);
    names_.insert(id);
    in_flight_bytes_ += bytes;
  }
  void End(ChunkSlot slot, uint64_t bytes) {
    const auto found = writing_.find(slot);
    KVKEEP_CHECK(found != writing_.end() && in_flight_bytes_ >= bytes);
    names_.erase(names_.find(found->second));
    writing_.erase(found);
    in_flight_bytes_ -= bytes;
  }
  bool IsWriting(ChunkSlot slot) const { return writing_.contains(slot); }
  // An image of that name may land there later.
  bool IsWriting(const ChunkId& id) const { return names_.contains(id); }
  bool busy() const { return !writing_.empty(); }

 private:
  std::deque<ChunkId> queue_;
  absl::btree_map<ChunkSlot, ChunkId> writing_;
  absl::btree_multiset<ChunkId> names_;  // of those
  uint64_t in_flight_bytes_ = 0;
};

}  // namespace kvkeep::store_internal
