// WriteLane: the images that are to be written to one device. It knows which is next, how many
// bytes are under way, and how many blocks the device was ever given.
//
// An image waits in the order of the generations, is under way once there is room among the bytes
// in flight, and ends when its last byte was written, or never will be. The device's tier owns it;
// the store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/key.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/account.h"

namespace kvkeep::store_internal {

class WriteLane {
 public:
  struct Queued {
    ChunkSlot slot;
    std::optional<ChunkKey> parent;  // near which it is written
  };

  void Push(Generation generation, Queued queued, uint64_t blocks) {
    KVKEEP_CHECK(queue_.emplace(generation, std::move(queued)).second);
    given_blocks_ += blocks;
    waited_for_ = true;
  }
  bool anyone_waits() const { return !queue_.empty(); }
  // The same, for callers without the lock. It may be late by a moment.
  bool waited_for() const { return waited_for_; }
  size_t waiting() const { return queue_.size(); }
  // REQUIRES: anyone_waits().
  std::pair<Generation, Queued> next() const {
    KVKEEP_CHECK(anyone_waits());
    return *queue_.begin();
  }
  // Removes an image. REQUIRES: it waits.
  void Remove(Generation generation) {
    KVKEEP_CHECK(queue_.erase(generation) == 1);
    waited_for_ = !queue_.empty();
  }

  // One image may always be under way, however large.
  bool MayBegin(uint64_t bytes, uint64_t most_in_flight) const {
    return in_flight_bytes_ == 0 || in_flight_bytes_ + bytes <= most_in_flight;
  }
  // Begins the write of an image that waits and that has `bytes` bytes.
  void Begin(Generation generation, uint64_t bytes) {
    Remove(generation);
    in_flight_bytes_.Take(bytes);
  }
  // Notes that `bytes` bytes are not under way any more. While no image waits, the bytes of an
  // image may be told all at once, with the last ones.
  void End(uint64_t bytes) { in_flight_bytes_.Give(bytes); }
  bool busy() const { return in_flight_bytes_ > 0; }

  // Returns the blocks of all images that were ever pushed. Devices are compared by it, so it is
  // set anew when a device changes its capacity or falls behind.
  uint64_t given_blocks() const { return given_blocks_; }
  void SetGiven(uint64_t blocks) { given_blocks_ = blocks; }

 private:
  absl::btree_map<Generation, Queued> queue_;
  std::atomic<bool> waited_for_{false};
  Account in_flight_bytes_;
  uint64_t given_blocks_ = 0;
};

}  // namespace kvkeep::store_internal
