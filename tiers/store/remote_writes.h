// RemoteWrites: the chunks that are to be written beyond the node, and those being written.
//
// Tenants take turns (fair_queue.h). A tenant's chunks go in the order in which they were offered,
// and the tenant may have as many in the queue as there is room left for others. The queue has the
// chunk's name: the chunk may be gone, or another one, when its turn comes. While it is written,
// Chunk::sending keeps its bytes.
//
// A search that finds a chunk assumes that all chunks before it are there, too (prefix_search.h).
// So a chunk is not written if its parent could not be. The names of such parents are kept for a
// while.
//
// The store's lock protects it.
#pragma once

#include <absl/container/btree_set.h>

#include <cstdint>
#include <deque>
#include <optional>

#include "tiers/base/check.h"
#include "tiers/base/key.h"
#include "tiers/base/units.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/fair_queue.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class RemoteWrites {
 public:
  static constexpr size_t kMostQueued = 8192, kMostMissing = 16384;
  struct Offered {
    ChunkId id;
    TenantId tenant;
    uint64_t bytes = 0;             // of its image
    std::optional<ChunkId> parent;  // none: it has none, or the parent is not known
    bool replace = false;           // overwrite the image there
    uint32_t refusals = 0;          // by a place that took other chunks
  };
  // A chunk that is being written.
  struct Sent {
    ChunkSlot slot;
    Offered what;
    uint64_t epoch;  // RemoteSource's, when it was sent
  };
  // After this many refusals a chunk is not offered again before its next use.
  static constexpr uint32_t kMostRefusals = 3;
  static constexpr uint64_t kMostBytesInFlight = 64 * kMiB;  // or one image, however large

  // Queues the chunk. Returns false, and counts it as missing there, if the queue is full or its
  // parent is missing.
  bool Offer(const Offered& offered) {
    const auto* const own = queue_.Find(offered.tenant);
    const bool room = (own == nullptr ? 0 : own->size()) < kMostQueued - waiting_;
    if (!room || IsMissing(offered.parent)) {
      NoteMissing(offered.id);
      return false;
    }
    queue_.Add(offered.tenant, offered.bytes).push_back(offered);
    ++waiting_;
    missing_.erase(offered.id);
    return true;
  }
  // Returns whether there is room for a chunk that may be there already. New chunks have more room.
  bool has_room_for_old() const { return waiting_ < kMostQueued / 4; }
  bool anyone_waits() const { return waiting_ > 0; }
  // REQUIRES: anyone_waits().
  const Offered& next() const {
    KVKEEP_CHECK(anyone_waits());
    return queue_.front().front();
  }
  void Pop() {
    KVKEEP_CHECK(anyone_waits());
    const uint64_t bytes = next().bytes;
    queue_.front().pop_front();
    queue_.Take(bytes);
    --waiting_;
  }
  // Notes that the chunk is not there.
  void NoteMissing(const ChunkId& id) {
    if (!missing_.insert(id).second) return;
    missing_order_.push_back(id);
    if (missing_order_.size() <= kMostMissing) return;
    missing_.erase(missing_order_.front());
    missing_order_.pop_front();
  }
  bool IsMissing(const std::optional<ChunkId>& id) const {
    return id.has_value() && missing_.contains(*id);
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
  // Returns whether an image of that name is being written, and may be there later.
  bool IsWriting(const ChunkId& id) const { return writing_.contains(id); }
  size_t writing() const { return writing_.size(); }
  bool busy() const { return !writing_.empty(); }
  // Returns how many wait or are being written.
  size_t under_way() const { return waiting_ + writing_.size(); }

 private:
  FairQueue<TenantId, std::deque<Offered>> queue_;
  size_t waiting_ = 0;
  absl::btree_set<ChunkId> missing_;
  std::deque<ChunkId> missing_order_;  // the names of missing_, the oldest first
  absl::btree_multiset<ChunkId> writing_;  // a chunk that was put anew may be here twice
  uint64_t in_flight_bytes_ = 0;
};

}  // namespace kvkeep::store_internal
