// Ghosts: fingerprints of chunks that are gone, for policies that learn from what comes back.
//
// A few lists, each in the order in which its members came, over a table of fingerprints. The owner
// bounds them: it takes the oldest out when there are too many. Every call is O(1), growing
// included: a bucket is added, and one split, with each node that is used for the first time
// (Litwin's linear hashing), so nothing is ever moved at once.
//
// 28 bytes a ghost, of memory that several may share (PolicyOptions::shares_memory_with): each sees
// its own only. Two chunks of one fingerprint are one ghost. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tiers/base/growing_memory.h"
#include "tiers/policy/eviction_policy.h"

namespace kvkeep {

class Ghosts {
 public:
  static constexpr int kLists = 2;

  // At most `most` at once, of all that share its memory.
  explicit Ghosts(uint32_t most) : Ghosts(std::make_shared<Table>(most)) {}
  // None yet, in the other's memory.
  static Ghosts Sharing(const Ghosts& other) { return Ghosts(other.table_); }

  // As the youngest of the list; out of the other list, if it is in one. Nothing when all is full.
  void Add(int list, Fingerprint fingerprint);
  // Out, and of which list; nothing when it is no ghost.
  std::optional<int> Take(Fingerprint fingerprint);
  // REQUIRES: size(list) > 0.
  void DropOldest(int list);
  uint32_t size(int list) const { return lists_[list].size; }

  // As EvictionPolicy::MemoryDue.
  std::span<std::byte> MemoryDue();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint64_t key;   // of the fingerprint and the owner
    uint32_t next;  // in its bucket, or of the free nodes
    uint32_t older, younger;
    uint32_t list;
  };
  struct List {
    uint32_t oldest = kNone, youngest = kNone, size = 0;
  };
  // The buckets and nodes of all that share them.
  struct Table {
    explicit Table(uint32_t most);
    uint32_t BucketOf(uint64_t key) const;
    // The link that leads to the key's node, or the one that ends its bucket.
    uint32_t* Find(uint64_t key);
    uint32_t NewNode();  // kNone: full
    void AddBucket();

    const uint32_t most;
    GrowingMemory node_memory, bucket_memory;
    Node* const nodes;
    uint32_t* const buckets;  // first nodes; as many as nodes were ever used
    uint32_t used = 0;
    uint32_t free = kNone;
    uint64_t owners = 0;
  };

  explicit Ghosts(std::shared_ptr<Table> table);
  uint64_t KeyOf(Fingerprint fingerprint) const;
  void Unlink(uint32_t node);
  // Takes out what `link` leads to.
  void Forget(uint32_t* link);

  const std::shared_ptr<Table> table_;
  const uint64_t owner_;
  std::array<List, kLists> lists_;
};

}  // namespace kvkeep
