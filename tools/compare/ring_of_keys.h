// RingOfKeys: which chunk lies in which of a fixed number of slots; a new one takes the oldest's.
// What contestants use that have no index and no eviction of their own. One thread.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tiers/base/key.h"

namespace kvkeep::compare {

class RingOfKeys {
 public:
  struct Slot {
    uint64_t number = 0;
    std::optional<ChunkKey> evicted;  // lay there until now
  };

  // Forgets all when the number of slots changes. REQUIRES: slots > 0.
  void Resize(uint64_t slots) {
    if (keys_.size() == slots) return;
    keys_.assign(slots, std::nullopt);
    slots_.clear();
    next_ = 0;
  }

  Slot Take(const ChunkKey& key) {
    Slot slot{.number = next_, .evicted = keys_[next_]};
    if (slot.evicted.has_value()) slots_.erase(*slot.evicted);
    keys_[next_] = key;
    slots_[key] = next_;
    next_ = (next_ + 1) % keys_.size();
    return slot;
  }

  std::optional<uint64_t> Find(const ChunkKey& key) const {
    const auto found = slots_.find(key);
    return found == slots_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::vector<std::optional<ChunkKey>> keys_;
  absl::flat_hash_map<ChunkKey, uint64_t> slots_;
  uint64_t next_ = 0;
};

}  // namespace kvkeep::compare
