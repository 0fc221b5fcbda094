// DurableWaiters: callbacks that wait until a chunk is in G3. After that they wait until the device
// has synced its record (device_syncs.h).
//
// If the chunk is given up, they fail. Callbacks run after the hold (hold.h), never under the lock.
// The store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>

#include <deque>
#include <optional>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/hold.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class DurableWaiters {
 public:
  explicit DurableWaiters(Hold* hold) : hold_(*hold) {}

  void Add(ChunkSlot slot, StatusCallback done) { waiting_[slot].push_back(std::move(done)); }
  bool Has(ChunkSlot slot) const { return waiting_.contains(slot); }
  // Returns the first slot from this one on that somebody waits for.
  std::optional<ChunkSlot> NextFrom(ChunkSlot slot) const {
    const auto found = waiting_.lower_bound(slot);
    return found == waiting_.end() ? std::nullopt : std::optional(found->first);
  }
  // Fails the slot's callbacks with `why`. One task after the hold calls all of them.
  void Fail(ChunkSlot slot, const absl::Status& why) {
    if (Has(slot)) hold_.CallLater(Take(slot), why);
  }
  // Takes all callbacks of the chunk, as one. REQUIRES: Has(slot).
  StatusCallback Take(ChunkSlot slot) {
    const auto found = waiting_.find(slot);
    KVKEEP_CHECK(found != waiting_.end());
    StatusCallback all = [all = std::move(found->second)](const absl::Status& status) mutable {
      for (StatusCallback& done : all) std::move(done)(status);
    };
    waiting_.erase(found);
    return all;
  }

 private:
  Hold& hold_;
  // A tree, since a hash map that grows moves all of its entries under the lock.
  absl::btree_map<ChunkSlot, std::deque<StatusCallback>> waiting_;
};

}  // namespace kvkeep::store_internal
