// G2Pool: one tenant's part of the arena - whole segments of it - with its own order of eviction
// and its own accounts. Tenants never share a segment, nor push each other out of G2.
//
// It is a plain part of the store's state. The store's lock protects it; Chunks and others keep the
// accounts. Extents in its interface are those of the arena, not counted from the pool's start. Its
// size is fixed when it is built. How much of that may be used is a limit, which may change.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
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
  // Withdraws the blocks of a page whose memory is broken: they are never given out again once they
  // are free. The caller of TakeBroken finds out which chunks have them. REQUIRES: the page is the
  // same as, or apart from, each one withdrawn before.
  void Withhold(const Extent& page) {
    if (broken_.emplace(page.first.value(), page).second) newly_broken_.push_back(page);
  }
  // Notes blocks without memory. Nobody gets them before AddMemory. REQUIRES: before EndRecovery.
  void AwaitMemory(const Extent& extent);
  void AddMemory(const Extent& extent);
  bool HasMemory(BlockNumber block) const;
  // For an image that has become resident. It may not have been resident when TakeBroken told of
  // its broken pages, so they are told again.
  void LookAgain(const PackedExtents& resident);
  // Each page is told whole, perhaps twice.
  std::vector<Extent> TakeBroken() { return std::exchange(newly_broken_, {}); }
  uint64_t withheld_blocks() const { return withheld_blocks_; }  // count as used
  void EndRecovery() { allocator_.EndRecovery(); }
  // As ExtentAllocator::Claim; OutOfRange also outside this pool.
  absl::Status Claim(const ExtentList& extents);
  // Returns whether the block is one of this pool's.
  bool Owns(BlockNumber block) const;

  const std::string& tenant() const { return tenant_; }
  BlockCount built() const { return allocator_.capacity(); }
  uint64_t to_come_blocks() const { return to_come_blocks_; }
  uint64_t there_blocks() const { return built().value() - to_come_blocks_; }
  uint64_t used_blocks() const { return there_blocks() - allocator_.free_blocks().value(); }
  // Returns how many blocks may be used. After a change of capacity these are fewer than were
  // built. If more are in use, because chunks cannot be evicted yet, it returns that number.
  uint64_t capacity_blocks() const { return std::max(limits.capacity_blocks, used_blocks()); }
  bool over_capacity() const { return used_blocks() > limits.capacity_blocks; }
  // Returns how many blocks are free for a caller that has gathered `own` blocks, once `given_up`
  // more blocks are given up.
  uint64_t free_blocks(uint64_t own = 0, uint64_t given_up = 0) const {
    KVKEEP_CHECK(own <= gathered_blocks);
    const uint64_t taken = used_blocks() + gathered_blocks - own;
    const uint64_t all = limits.capacity_blocks + given_up;
    return all - std::min(all, taken);
  }
  // Returns whether leases of this tenant may hold `blocks` more blocks.
  bool MayLease(uint64_t blocks) const {
    return pinned_blocks + borrowed_blocks + blocks <= limits.leased_blocks;
  }
  // Returns whether other tenants may hold `blocks` more blocks of this pool. Half is never lent.
  bool MayLend(uint64_t blocks) const { return lent_blocks + blocks <= limits.leased_blocks / 2; }
  // Returns whether other nodes may hold `blocks` more blocks: half of what is lent, by default an
  // eighth of the pool. One chunk of what may be lent always may be theirs.
  bool MayLendToPeers(uint64_t blocks) const {
    const bool alone = peer_blocks == 0;
    return MayLend(blocks) && (alone || peer_blocks + blocks <= limits.leased_blocks / 4);
  }
  // Returns whether `blocks` more blocks may wait for their write-back. One chunk always may. Else
  // a chunk larger than the budget would never reach G3.
  bool MayBeDirty(uint64_t blocks) const {
    return dirty_blocks == 0 || dirty_blocks + blocks <= limits.dirty_blocks;
  }
  // Returns whether `blocks` blocks can be allocated by how the free ones lie, without any limits.
  bool Fits(uint64_t blocks) const { return allocator_.Fits(BlockCount(blocks)); }
  uint64_t FreeIn(const Extent& extent) const;
  const ExtentAllocator::Stats& stats() const { return allocator_.stats(); }
  void CheckInvariants() const;

  Limits limits;
  const std::unique_ptr<EvictionPolicy> policy;
  PlaceIndex places;              // of the chunks in the policy
  Account chunks;                 // resident ones
  Account evictable_blocks;       // of chunks that could be evicted now
  Account pinned_blocks;          // of chunks with pins, each once
  Account lent_blocks;            // used by other tenants and nodes; each such use counts
  Account peer_blocks;            // of the lent ones: read by other nodes
  Account borrowed_blocks;        // that this tenant leases from others' pools
  Account dirty_blocks;
  // Chunks that only G2 has and that are not being written; those of them that wait for a write.
  Account unbacked_chunks, unbacked_blocks;
  UnbackedQueue unbacked;
  // Free blocks that are kept for allocations that make room in slices. Nobody else takes them.
  Account gathered_blocks;
  Account recalling_blocks;  // that recalls (recaller.h) are filling

 private:
  ExtentList Relative(ExtentList extents) const;
  void FreeRun(uint64_t first, uint64_t end);
  // Calls `page` for each broken page that the extent touches, in order.
  void ForEachBroken(const Extent& in, absl::FunctionRef<void(const Extent&)> page) const;

  const std::string tenant_;
  const uint64_t first_;
  ExtentAllocator allocator_;  // counts from the pool's start
  std::map<uint64_t, Extent> broken_;  // pages, by the first block; few, or none
  std::vector<Extent> newly_broken_;
  uint64_t withheld_blocks_ = 0;
  std::map<uint64_t, uint64_t> to_come_;  // by the first block: the end. One run a segment
  uint64_t to_come_blocks_ = 0;
};

}  // namespace kvkeep::store_internal
