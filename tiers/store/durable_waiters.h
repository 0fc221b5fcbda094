// DurableWaiters: who waits for a chunk to be in G3. After that they wait for the device to have
// synced its record: device_syncs.h.
//
// A chunk that is given up fails them. Callbacks run after the hold (hold.h), never under the lock.
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
  // The first that is waited for, of this slot and those behind it.
  std::optional<ChunkSlot> NextFrom(ChunkSlot slot) const {
    const auto found = waiting_.lower_bound(slot);
    return found == waiting_.end() ? std::nullopt : std::optional(found->first);
  }
  // They are told why. However many they are, one thing to do after the hold.
  void Fail(ChunkSlot slot, const absl::Status& why) {
    if (Has(slot)) hold_.CallLater(Take(slot), why);
  }
  // All of the chunk's, as one. REQUIRES: Has(slot).
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
  // A tree: a hash map that grows moves all of its entries under the lock.
  absl::btree_map<ChunkSlot, std::deque<StatusCallback>> waiting_;
};

}  // namespace kvkeep::store_internal
