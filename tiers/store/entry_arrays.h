// EntryArrays: arrays of hash map entries, for the shards of the chunk table.
//
// A shard that grows takes an array of twice the size, under the store's lock, and all shards do so
// at about the same time. malloc would have the kernel find pages then; these come out of memory
// touched ahead. An array given back becomes one with its free neighbour (buddies), so that what
// smaller arrays leave is what larger ones are made of: when all shards have grown, nothing of the
// old ones is left over. Every call takes as many steps as there are sizes, at most. Not
// thread-safe.
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
  // For `users` that each hold one array at a time, of `least` to `most` entries, and double it.
  // REQUIRES: powers of two, least at least 2.
  EntryArrays(uint64_t users, uint32_t least, uint32_t most);

  // All empty. REQUIRES: a power of two, least to most.
  TableEntry* Take(uint32_t entries);
  // One that Take gave, of that size.
  void GiveBack(TableEntry* array, uint32_t entries);
  // Memory that the next arrays need, for GrowingMemory::Touch; empty when there is none.
  std::span<std::byte> MemoryDue() {
    const auto due = memory_.Due(used_bytes());
    return due.empty() ? marks_.Due(used_ / least_) : due;
  }
  // Of memory that arrays were ever made of.
  uint64_t used_bytes() const { return used_ * sizeof(TableEntry); }

 private:
  // What lies at the beginning of a free array.
  struct Free {
    TableEntry* next = nullptr;
    TableEntry* previous = nullptr;
  };
  static int SizeOf(uint32_t entries);
  static Free LoadFree(const TableEntry* array);
  // Of `least` entries: the size of the free array that begins there, as a power of two; else 0.
  uint8_t& mark(const TableEntry* array);
  void Push(TableEntry* array, int size);
  void Remove(TableEntry* array, int size);
  // A free array, if need be cut from a larger one; null: there is none.
  TableEntry* TakeFree(int size);

  const uint32_t least_, most_;
  GrowingMemory memory_, marks_;
  TableEntry* const entries_;           // memory_
  uint64_t used_ = 0;                   // of these, from the front
  std::array<TableEntry*, 32> free_{};  // by size, as a power of two: the first free array
};

}  // namespace kvkeep::store_internal
