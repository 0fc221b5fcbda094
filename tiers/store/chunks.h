// Chunks: every chunk of a store, the lock that protects them, and their space in G2.
//
// Owns the store's lock, the table of chunks, each tenant's pool of G2, and the accounts that
// follow a chunk from its creation to its end. It decides nothing about other tiers: ChunkHooks
// tells them that a chunk changes.
//
// How the lock is used: every entry point of the store opens a Section (section.h). Work for the
// outside (device I/O, executor tasks, callers' callbacks) goes into the hold (hold.h) with Later()
// and runs on the same thread right after the Section has unlocked. Code opens a Change (change.h)
// around each change that may make a chunk evictable or not, or end its life. The end of the Change
// settles the accounts. From then on the chunk may be gone.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/histogram.h"
#include "tiers/store/chunk_hooks.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/counters.h"
#include "tiers/store/fair_mutex.h"
#include "tiers/store/g2_pool.h"
#include "tiers/store/hold.h"
#include "tiers/store/life_samples.h"
#include "tiers/store/live_marks.h"
#include "tiers/store/owners.h"
#include "tiers/store/pump.h"
#include "tiers/store/shares.h"
#include "tiers/store/store_deps.h"
#include "tiers/store/store_lock.h"
#include "tiers/store/window_search.h"
#include "tiers/store/work.h"

namespace kvkeep::store_internal {

class Section;

// The outcome of one try to evict. kSpent: nothing was evicted yet, and this hold has done its
// share of work.
enum class Evicted : uint8_t { kOne, kNone, kSpent };

class Chunks {
 public:
  // Tenants' pools take the arena's segments in the order of options.tenants. Their limits are 0
  // until somebody sets them. `deps`, `owners` and `hooks` outlive this.
  Chunks(const StoreOptions& options, const StoreDeps& deps, Incarnation incarnation,
         std::vector<Shares::Claim> claims, const Owners* owners, ChunkHooks* hooks);
  ~Chunks();
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  // ---- this hold of the lock
  void Count(uint32_t units) STORE_LOCKED { hold.Count(units); }
  bool Spent() const STORE_LOCKED { return hold.Spent(); }
  void Later(Hold::Task task) STORE_LOCKED { hold.Later(std::move(task)); }
  template <typename Callback, typename Answer>
  void CallLater(Callback callback, Answer answer) STORE_LOCKED {
    hold.CallLater(std::move(callback), std::move(answer));
  }
  // Has the pump run after this hold, in holds of its own. The pump's owner must live until the
  // pump stands still.
  void PumpLater(Pump& pump) STORE_LOCKED;
  // Tells clang's thread-safety analysis that the lock is held, in code where it cannot see this.
  void AssertHeld() ABSL_ASSERT_EXCLUSIVE_LOCK(store_lock) { mu_.AssertHeld(); }
  // Notes whether the store is at rest: nothing is left to do. The next call ends the rest.
  void SetAtRest(bool at_rest) STORE_LOCKED { at_rest_ = at_rest; }

  // ---- the life of a chunk
  // As ChunkTable::Create. The chunk belongs to the owner of its namespace.
  ChunkSlot Create(const ChunkId& id, const ImageShape& shape) STORE_LOCKED;
  // Makes the chunk impossible to find. Its space is freed when nobody uses it any more.
  void Detach(ChunkSlot slot) STORE_LOCKED;
  void Pin(ChunkSlot slot) STORE_LOCKED;
  void Unpin(ChunkSlot slot) STORE_LOCKED;
  // Returns whether an image of `blocks` blocks is large beside `chunks` chunks that have
  // `used_blocks` blocks in all. One part of a tier is emptied for a large image (window_search.h).
  bool IsLarge(uint64_t blocks, uint64_t chunks, uint64_t used_blocks) const {
    return chunks > 0 && blocks * chunks > large_chunks_ * used_blocks;
  }
  // Tells the samples of lives (life_samples.h) that a copy of the chunk has left a tier.
  void NoteGone(const Chunk& chunk, LifeSamples::Where where, EvictionPolicy::EraseReason reason)
      STORE_LOCKED;

  // ---- G2
  // False for Nobody (shares.h): chunks whose tenant is not configured any more are in G3 alone.
  bool HasPool(TenantId tenant) const STORE_LOCKED { return tenant.value() < pools.size(); }
  G2Pool& pool(TenantId tenant) STORE_LOCKED {
    KVKEEP_CHECK(HasPool(tenant));
    return *pools[tenant.value()];
  }
  G2Pool& pool(const Chunk& chunk) STORE_LOCKED { return pool(chunk.tenant); }
  // The tenant's part of the arena, as it was built.
  double part(size_t tenant) const { return parts_[tenant]; }
  // Returns space in the tenant's pool, near the parent's if possible, and evicts chunks to make
  // room. None: even if every chunk were evicted that can be, there would not be enough. May yield.
  std::optional<ExtentList> Allocate(Section& section, TenantId tenant, uint64_t blocks,
                                     ChunkSlot parent) STORE_LOCKED;
  Evicted EvictOne(G2Pool& from) STORE_LOCKED;
  // REQUIRES: the chunk is of the pool and evictable_from_g2().
  void Evict(G2Pool& from, ChunkSlot slot) STORE_LOCKED;
  void InsertIntoPolicy(ChunkSlot slot, ChunkSlot parent) STORE_LOCKED;
  // Every change of a chunk's G2 state goes through here.
  void SetG2State(Chunk& chunk, G2State to) STORE_LOCKED;
  // Gives the chunk a copy in G2. `extents` are from `tenant`'s pool, and `state` says what their
  // bytes are. REQUIRES: inside a Change; the chunk is `tenant`'s.
  void GiveCopy(Chunk& chunk, TenantId tenant, ExtentList extents, G2State state) STORE_LOCKED;
  // Frees the chunk's copy in G2. REQUIRES: inside a Change; nobody uses it.
  void FreeCopy(Chunk& chunk, ChunkSlot slot, EvictionPolicy::EraseReason reason) STORE_LOCKED;
  // Takes the chunk out of the queue of chunks that wait for a write-back. Returns the slot of its
  // parent as noted, which may be another chunk's by now; kNoSlot: it did not wait, or has no
  // parent.
  ChunkSlot EndUnbackedWait(ChunkSlot slot) STORE_LOCKED;
  // Notes in the chunk's pool whether G2 alone has the chunk.
  void NoteUnbacked(Chunk& chunk) STORE_LOCKED;
  // Returns the memory of an image in G2 from `offset`, as far as it is contiguous, at most
  // `bytes`.
  std::span<std::byte> ImageMemory(const ExtentList& extents, uint64_t offset,
                                   uint64_t bytes) const;
  HeaderPage HeaderInArena(const ExtentList& extents) const;
  ImagePlacement PlacementOf(Generation generation, const ExtentList& extents) const;
  // Withdraws blocks whose memory the kernel gave up: their pools give them out no more.
  void WithholdBroken() STORE_LOCKED;
  // Fetch memory that a call under the lock reads soon: the chunk's entry of the table, or the
  // chunk in the slot. They need no lock, and shorten the hold that follows.
  void PrefetchFind(const ChunkId& id) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    table.PrefetchFind(id);
  }
  void Prefetch(ChunkSlot slot) const ABSL_NO_THREAD_SAFETY_ANALYSIS { table.Prefetch(slot); }
  // The numbers of images that this process makes. They need no lock.
  Incarnation incarnation() const { return incarnation_; }
  Generation NextGeneration() { return Generation(next_generation_++); }
  void BeginGenerationsAfter(Generation last) { next_generation_ = last.value() + 1; }

  // ---- the lock's own figures
  uint64_t TakeLongestHoldNs();
  const Histogram& lock_hold() const STORE_LOCKED { return lock_hold_; }
  const Histogram& lock_wait() const STORE_LOCKED { return lock_wait_; }

  // ---- the state, which all objects of the store share
  Hold hold STORE_GUARDED;
  MemoryToucher toucher;
  const std::shared_ptr<SlotArrays> slots;  // the lock protects its contents
  ChunkTable table STORE_GUARDED;
  std::vector<std::unique_ptr<G2Pool>> pools STORE_GUARDED;  // by TenantId
  Shares slot_shares STORE_GUARDED;                          // of the table's slots
  LiveMarks marks STORE_GUARDED;
  LifeSamples life STORE_GUARDED;
  StoreCounters counters STORE_GUARDED;
  std::vector<TenantCounters> tenant_counters STORE_GUARDED;  // by TenantId; Nobody is last
  bool draining STORE_GUARDED = false;  // the store is about to stop: nothing new begins
  // Grows when a chunk changes its slot, or a device leaves. A walk over the table that yielded
  // meanwhile may have missed a chunk, so it begins anew.
  uint64_t moves STORE_GUARDED = 0;

 private:
  friend class Section;
  friend class Change;
  // A function that a call which waits for space runs before it lets go of the lock.
  using BeforeYield = absl::FunctionRef<void()>;

  // Takes the chunk's copy out of the order of eviction, if it is there.
  void EraseFromPolicy(Chunk& chunk, ChunkSlot slot,
                       EvictionPolicy::EraseReason reason) STORE_LOCKED;
  // Evicts the chunks in one part of the pool, so that `blocks` blocks are free there. Returns
  // false if no part can be emptied so far. May yield.
  bool EmptyWindow(Section& section, G2Pool& from, uint64_t blocks, BeforeYield before_yield)
      STORE_LOCKED;
  WindowSearch::Yield LookAt(const G2Pool& from, uint64_t granule) STORE_LOCKED;

  void KeepPumping(Pump& pump);
  void NoteHold(uint64_t held_ns, uint64_t worked_ns, uint64_t waited_ns) STORE_LOCKED;
  // Ends a Change.
  void Settle(ChunkSlot slot, bool was_evictable) STORE_LOCKED;

  const StoreDeps& deps_;
  const Incarnation incarnation_;
  const uint32_t large_chunks_;  // an image with more blocks than this many chunks have is large
  const Owners& owners_;
  ChunkHooks& hooks_;
  std::vector<double> parts_;  // by TenantId; constant
  std::atomic<uint64_t> next_generation_ = 1;

  FairMutex mu_;
  bool at_rest_ STORE_GUARDED = false;
  Histogram lock_hold_ STORE_GUARDED, lock_wait_ STORE_GUARDED;
};

}  // namespace kvkeep::store_internal
