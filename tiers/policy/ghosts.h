// Ghosts: fingerprints of chunks that are gone, for policies that learn from what comes back.
//
// Two lists, each in the order in which its members came. The owner bounds them: it takes the
// oldest out when there are too many. Every call is O(1). 28 bytes a ghost, of memory that several
// may share (PolicyOptions::shares_memory_with): each sees its own only. Not thread-safe.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "tiers/policy/fingerprint_table.h"

namespace kvkeep {

class Ghosts {
 public:
  // `most`: limit of ghosts at once, in all objects that share its memory.
  explicit Ghosts(uint32_t most, MemoryToucher* toucher = nullptr)
      : Ghosts(std::make_shared<Memory>(most, toucher)) {}
  // Returns an object without ghosts that shares the other's memory.
  static Ghosts Sharing(const Ghosts& other) { return Ghosts(other.memory_); }

  // Adds it as the youngest of the list, after taking it out of the list that it is in. Does
  // nothing when the memory is full.
  void Add(int list, Fingerprint fingerprint);
  // Removes the ghost and returns its list, or nullopt if it is not a ghost.
  std::optional<int> Take(Fingerprint fingerprint);
  // REQUIRES: size(list) > 0.
  void DropOldest(int list);
  uint32_t size(int list) const { return lists_[list].size; }

 private:
  static constexpr uint32_t kNone = FingerprintTable::kNone;
  struct Node {
    uint32_t older, younger;
    uint32_t list;
  };
  struct List {
    uint32_t oldest = kNone, youngest = kNone, size = 0;
  };
  struct Memory {
    Memory(uint32_t most, MemoryToucher* toucher)
        : table(most, toucher),
          memory(uint64_t{most} * sizeof(Node), toucher),
          nodes(reinterpret_cast<Node*>(memory.data())) {}
    FingerprintTable table;
    GrowingMemory memory;
    Node* const nodes;  // by the table's number
  };

  explicit Ghosts(std::shared_ptr<Memory> memory)
      : memory_(std::move(memory)), owner_(memory_->table.NewOwner()) {}
  void Forget(uint32_t at);

  const std::shared_ptr<Memory> memory_;
  const uint32_t owner_;
  std::array<List, 2> lists_;
};

}  // namespace kvkeep
