// RemoteWrites: which chunks are to be written beyond the node, in the order in which they were
// offered, and which are being written.
//
// A chunk waits by its name: it may be gone, or another one, when its turn comes. While it is
// written its slot is pinned by the caller. The core's lock protects it.
#pragma once

#include <absl/container/btree_map.h>

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
    in_flight_bytes_ += bytes;
  }
  void End(ChunkSlot slot, uint64_t bytes) {
    KVKEEP_CHECK(writing_.erase(slot) == 1 && in_flight_bytes_ >= bytes);
    in_flight_bytes_ -= bytes;
  }
  bool IsWriting(ChunkSlot slot) const { return writing_.contains(slot); }
  // An image of that name may land there later.
  bool IsWriting(const ChunkId& id) const {
    for (const auto& [slot, writing] : writing_) {
      if (writing == id) return true;
    }
    return false;
  }
  bool busy() const { return !writing_.empty(); }

 private:
  std::deque<ChunkId> queue_;
  absl::btree_map<ChunkSlot, ChunkId> writing_;  // few
  uint64_t in_flight_bytes_ = 0;
};

}  // namespace kvkeep::store_internal
