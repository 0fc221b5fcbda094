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
  // At most `most` at once, of all that share its memory.
  explicit Ghosts(uint32_t most, MemoryToucher* toucher = nullptr)
      : Ghosts(std::make_shared<Memory>(most, toucher)) {}
  // None yet, in the other's memory.
  static Ghosts Sharing(const Ghosts& other) { return Ghosts(other.memory_); }

  // As the youngest of the list; out of the other list, if it is in one. Nothing when all is full.
  void Add(int list, Fingerprint fingerprint);
  // Out, and of which list; nothing when it is no ghost.
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
