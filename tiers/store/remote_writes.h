// RemoteWrites: which chunks are to be written beyond the node, in the order in which they were
// offered, and which are being written.
//
// A chunk waits by its name: it may be gone, or another one, when its turn comes. While it is
// written Chunk::sending keeps its bytes. The core's lock protects it.
#pragma once

#include <absl/container/btree_set.h>

#include <cstdint>
#include <deque>

#include "tiers/base/check.h"
#include "tiers/base/key.h"
#include "tiers/base/units.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep::store_internal {

class RemoteWrites {
 public:
  static constexpr size_t kMostQueued = 4096;
  struct Offered {
    ChunkId id;
    bool replace = false;      // what is there
    uint32_t refusals = 0;     // of it, by a place that takes others
  };
  // One that is being written.
  struct Sent {
    ChunkSlot slot;
    bool replace;
    uint32_t refusals = 0;
  };
  // After so many it is not offered again before its next use.
  static constexpr uint32_t kMostRefusals = 3;
  static constexpr uint64_t kMostBytesInFlight = 64 * kMiB;  // or one image, however large

  // False: the queue is full, and this one is dropped.
  bool Offer(const Offered& offered) {
    if (queue_.size() >= kMostQueued) return false;
    queue_.push_back(offered);
    return true;
  }
  // What may be there already leaves room for what is new.
  bool has_room_for_old() const { return queue_.size() < kMostQueued / 2; }
  bool anyone_waits() const { return !queue_.empty(); }
  // REQUIRES: anyone_waits().
  const Offered& next() const {
    KVKEEP_CHECK(anyone_waits());
    return queue_.front();
  }
  void Pop() {
    KVKEEP_CHECK(anyone_waits());
    queue_.pop_front();
  }

  bool MayBegin(uint64_t bytes) const {
    return in_flight_bytes_ == 0 || in_flight_bytes_ + bytes <= kMostBytesInFlight;
  }
  void Begin(const ChunkId& id, uint64_t bytes) {
    writing_.insert(id);
    in_flight_bytes_ += bytes;
  }
  void End(const ChunkId& id, uint64_t bytes) {
    const auto found = writing_.find(id);
    KVKEEP_CHECK(found != writing_.end() && in_flight_bytes_ >= bytes);
    writing_.erase(found);
    in_flight_bytes_ -= bytes;
  }
  // An image of that name may land there later.
  bool IsWriting(const ChunkId& id) const { return writing_.contains(id); }
  size_t writing() const { return writing_.size(); }
  bool busy() const { return !writing_.empty(); }
  // Waiting, or being written.
  size_t under_way() const { return queue_.size() + writing_.size(); }

 private:
  std::deque<Offered> queue_;
  absl::btree_multiset<ChunkId> writing_;  // one that was put anew may be so twice
  uint64_t in_flight_bytes_ = 0;
};

}  // namespace kvkeep::store_internal
