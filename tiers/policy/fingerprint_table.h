// FingerprintTable: maps fingerprints to small dense numbers, for policies' notes on chunks that
// need not be present.
//
// Every call is O(1), growing included: buckets are added, and as many split, with each number that
// is given for the first time (Litwin's linear hashing), so nothing is ever moved at once. 16 bytes
// a number. Several owners may share one: each sees its own only. Two chunks of one fingerprint are
// one. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "tiers/base/growing_memory.h"
#include "tiers/policy/chunk_slot.h"

namespace kvkeep {

class FingerprintTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // A fingerprint of one owner, mixed.
  struct Key {
    uint64_t bits = 0;
  };

  explicit FingerprintTable(uint32_t most, MemoryToucher* toucher = nullptr);

  uint32_t NewOwner() { return ++owners_; }
  static Key KeyOf(Fingerprint fingerprint, uint32_t owner);

  // Returns the key's number, below used(), or kNone if it has none.
  uint32_t Find(Key key) const { return *const_cast<FingerprintTable*>(this)->LinkTo(key.bits); }
  Key KeyOf(uint32_t number) const { return {nodes_[number].key()}; }
  // Prefetches the memory that Find of these keys reads.
  void Prefetch(std::span<const Key> keys) const;
  // Gives the key a number and returns it; kNone if the table is full. REQUIRES: it has none.
  uint32_t Insert(Key key);
  // Removes the key. Its number may be given to another key next.
  void Erase(uint32_t number);
  // Returns how many more keys fit.
  uint32_t room() const { return most_ - size_; }
  // Numbers ever given are below this.
  uint32_t used() const { return used_; }

 private:
  // Most buckets that are in use hold one or two nodes.
  static constexpr uint64_t kBucketsPerNumber = 1;
  struct Node {
    uint32_t low, high;  // the key
    uint32_t next;       // in its bucket, or of the free ones
    uint64_t key() const { return uint64_t{high} << 32 | low; }
  };
  uint64_t BucketOf(uint64_t key) const {
    const uint64_t end = kBucketsPerNumber * used_;
    const uint64_t round = std::bit_ceil(end);
    const uint64_t bucket = key & (round - 1);
    return bucket < end ? bucket : bucket - round / 2;
  }
  // The link that leads to the key's node, or the one that ends its bucket.
  uint32_t* LinkTo(uint64_t key);
  void AddBucket(uint64_t added);

  const uint32_t most_;
  GrowingMemory node_memory_, bucket_memory_;
  Node* const nodes_;
  uint32_t* const buckets_;  // first nodes
  uint32_t used_ = 0, size_ = 0;
  uint32_t free_ = kNone;
  uint32_t owners_ = 0;
  uint32_t nothing_ = kNone;
};

}  // namespace kvkeep
