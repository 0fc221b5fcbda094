// EntryArrays: arrays of hash map entries, for the shards of the chunk table.
//
// A shard that grows takes an array of twice the size, under the store's lock, and all shards do so
// at about the same time. malloc would have the kernel find pages then; these come out of memory
// touched ahead. An array given back is the next one of its size. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tiers/base/growing_memory.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep::store_internal {

// Tells most strangers apart without a look at their chunks; the tag also says where the entry
// belongs, so growing reads no chunk either.
struct TableEntry {
  uint32_t tag = 0;  // the hash's low bits
  uint32_t slot = kNoSlot.value();
  bool empty() const { return slot == kNoSlot.value(); }
};

class EntryArrays {
 public:
  // For `users` that each hold one array at a time, of at most `most_entries`, and double it.
  EntryArrays(uint64_t users, uint64_t most_entries);

  // All empty. REQUIRES: a power of two, at least 2.
  TableEntry* Take(uint32_t entries);
  void GiveBack(TableEntry* array, uint32_t entries);
  // Memory that the next arrays need, for GrowingMemory::Touch; empty when there is none.
  std::span<std::byte> MemoryDue() { return memory_.Due(used_bytes_); }

 private:
  GrowingMemory memory_;
  uint64_t used_bytes_ = 0;  // never given back ones, from the front
  // By size, 2 to the power of the index: the first free array, the first bytes of which point on.
  std::array<TableEntry*, 33> free_{};
};

}  // namespace kvkeep::store_internal
