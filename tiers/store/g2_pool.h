// G2Pool: one tenant's part of the arena - whole segments of it - with its own order of eviction
// and its own accounts. Tenants never share a segment, nor push each other out of G2.
//
// A plain part of the store's state: the store's lock protects it, Chunks and others keep the
// accounts. Extents that go in and out are the arena's, not counted from the pool's start. What it
// was built with is fixed; how much of that may be used is a limit, which may change.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tiers/alloc/extent_allocator.h"
#include "tiers/base/check.h"
#include "tiers/base/extent.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/account.h"
#include "tiers/store/packed_extents.h"
#include "tiers/store/place_index.h"
#include "tiers/store/types.h"
#include "tiers/store/unbacked_queue.h"

namespace kvkeep::store_internal {

class G2Pool {
 public:
  struct Limits {
    uint64_t capacity_blocks = 0;  // at most what has memory
    uint64_t leased_blocks = 0;
    uint64_t reserved_blocks = 0;
    uint64_t dirty_blocks = 0;
  };

  // The blocks [first, first + capacity); `first` is where a segment begins. `nodes`: as
  // PlaceIndex.
  G2Pool(std::string tenant, BlockNumber first, BlockCount capacity, BlockCount segment_blocks,
         const Limits& limits, std::unique_ptr<EvictionPolicy> policy, PlaceIndex::Node* nodes);

  std::optional<ExtentList> Allocate(BlockCount blocks, std::optional<BlockNumber> near);
  void Free(const ExtentList& extents);
  // Never to be given out again, from when it is freed on: its memory is broken. Whose it is, who
  // calls TakeBroken finds out.
  void Withhold(BlockNumber block) {
    if (broken_.insert(block.value()).second) newly_broken_.push_back(block);
  }
  // These have no memory yet: nobody gets them, until they have. REQUIRES: before EndRecovery.
  void AwaitMemory(const Extent& extent);
  void AddMemory(const Extent& extent);
  bool HasMemory(BlockNumber block) const;
  // An image became resident that may not have been when TakeBroken told whose memory broke: what
  // of its blocks is broken is told again.
  void LookAgain(const PackedExtents& resident);
  std::vector<BlockNumber> TakeBroken() { return std::exchange(newly_broken_, {}); }
  uint64_t withheld_blocks() const { return withheld_blocks_; }  // of the used ones
  void EndRecovery() { allocator_.EndRecovery(); }
  // As ExtentAllocator::Claim; OutOfRange also outside this pool.
  absl::Status Claim(const ExtentList& extents);
  // Whether the block is one of this pool's.
  bool Owns(BlockNumber block) const;

  const std::string& tenant() const { return tenant_; }
  BlockCount built() const { return allocator_.capacity(); }
  uint64_t to_come_blocks() const { return to_come_blocks_; }
  uint64_t there_blocks() const { return built().value() - to_come_blocks_; }
  uint64_t used_blocks() const { return there_blocks() - allocator_.free_blocks().value(); }
  // How many blocks may be used: after a change of capacity fewer than were built. If more are in
  // use, because chunks cannot go yet, that number.
  uint64_t capacity_blocks() const { return std::max(limits.capacity_blocks, used_blocks()); }
  bool over_capacity() const { return used_blocks() > limits.capacity_blocks; }
  // Blocks that are free for a caller that has gathered `own` blocks, once `given_up` more are
  // given up.
  uint64_t free_blocks(uint64_t own = 0, uint64_t given_up = 0) const {
    KVKEEP_CHECK(own <= gathered_blocks);
    const uint64_t taken = used_blocks() + gathered_blocks - own;
    const uint64_t all = limits.capacity_blocks + given_up;
    return all - std::min(all, taken);
  }
  // Whether leases of this tenant may hold so many blocks more.
  bool MayLease(uint64_t blocks) const {
    return pinned_blocks + borrowed_blocks + blocks <= limits.leased_blocks;
  }
  // Whether other tenants may hold so many blocks more of it: half is never lent.
  bool MayLend(uint64_t blocks) const { return lent_blocks + blocks <= limits.leased_blocks / 2; }
  // Whether so many blocks more may wait for their write-back. One chunk always may: one larger
  // than the budget would never reach G3.
  bool MayBeDirty(uint64_t blocks) const {
    return dirty_blocks == 0 || dirty_blocks + blocks <= limits.dirty_blocks;
  }
  // Whether its free blocks lie such that so many can be allocated, whatever the limits say.
  bool Fits(uint64_t blocks) const { return allocator_.Fits(BlockCount(blocks)); }
  uint64_t FreeIn(const Extent& extent) const;
  const ExtentAllocator::Stats& stats() const { return allocator_.stats(); }
  void CheckInvariants() const;

  Limits limits;
  const std::unique_ptr<EvictionPolicy> policy;
  PlaceIndex places;              // of the chunks in the policy
  Account chunks;                 // resident
  Account evictable_blocks;       // of chunks that could go now
  Account pinned_blocks;          // of chunks with pins, each once
  Account lent_blocks;            // leased and read by other tenants, each time counted
  Account borrowed_blocks;        // leased by this one of others' pools
  Account dirty_blocks;
  // What it has in G2 alone, no write of it under way; and who of these waits for one.
  Account unbacked_chunks, unbacked_blocks;
  UnbackedQueue unbacked;
  // Free, but kept for allocations that make room in slices: nobody else takes them.
  Account gathered_blocks;
  Account recalling_blocks;  // that recalls (recaller.h) are filling

 private:
  ExtentList Relative(ExtentList extents) const;
  void FreeRun(uint64_t first, uint64_t end);

  const std::string tenant_;
  const uint64_t first_;
  ExtentAllocator allocator_;  // counts from the pool's start
  std::set<uint64_t> broken_;  // few, or none
  std::vector<BlockNumber> newly_broken_;
  uint64_t withheld_blocks_ = 0;
  std::map<uint64_t, uint64_t> to_come_;  // by the first block: the end. One run a segment
  uint64_t to_come_blocks_ = 0;
};

}  // namespace kvkeep::store_internal
