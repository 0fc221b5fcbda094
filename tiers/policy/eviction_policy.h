// EvictionPolicy: which chunk of a tier goes next. A pure state machine over ids.
//
// It knows nothing of bytes' places, leases, I/O or locks. Its owner (the store, for each tier; the
// `simulate` verb) tells it what happens and asks for victims. Not thread-safe. No call blocks, and
// its time grows with the links it is given, not with the number of chunks.
//
// A ChunkSlot is a small dense number, unique among the chunks that exist at one moment and reused
// after OnErase. A fingerprint is a 64-bit hash of the chunk's identity that outlives eviction (for
// ghosts); two chunks may share one, so it may mislead a heuristic but never an invariant.
//
// Order within a request: an engine that loses the head of a prefix loses all of it. So a request's
// chunks are touched from the tail to the head, and the head ends as the youngest.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/strong_int.h"

namespace kvkeep {

using ChunkSlot = StrongInt<struct ChunkSlotTag, uint32_t>;
inline constexpr ChunkSlot kNoSlot{UINT32_MAX};
using Fingerprint = StrongInt<struct FingerprintTag, uint64_t>;

class EvictionPolicy {
 public:
  // One link of a request's chain. `slot` is kNoSlot when the chunk is not in this tier.
  struct ChainLink {
    ChunkSlot slot = kNoSlot;
    Fingerprint fingerprint;
  };
  struct NewChunk {
    ChunkSlot slot = kNoSlot;
    Fingerprint fingerprint;
    ChunkSlot parent = kNoSlot;  // the chunk before it in its chain, when that is in this tier
    uint32_t blocks = 0;         // size in the tier, 4 KiB each
    uint32_t parts = 1;          // parts that the namespace keeps per key
    bool transient = false;      // read once: the first to go
  };
  enum class EraseReason {
    kEvicted,  // made room: may become a ghost
    kRemoved,  // deleted, cleared, corrupt, lost: forget it
  };

  virtual ~EvictionPolicy() = default;
  virtual absl::string_view name() const = 0;

  // A request arrived that wants `chain`, head first, some links present and some not. Present
  // links count as hit and touched. A chain is told once per request, before the inserts it causes.
  virtual void OnRequest(std::span<const ChainLink> chain, MonotonicTime now) = 0;
  // More of the chain that the last calls told of: the links just before those. A long chain is
  // told in slices, from its tail to its head, and other calls may come between two slices.
  virtual void OnRequestContinued(std::span<const ChainLink> chain, MonotonicTime now) = 0;
  // Whether the policy learns from whole chains. Such a policy takes a chain that is told whole
  // from OnRequest. Of a request in slices it gets an OnRequest without links, the slices by
  // OnRequestContinued, and the whole chain at the end by OnChain. So slices of several requests
  // may be mixed.
  virtual bool LearnsFromChains() const { return false; }
  // A chain that the policy is learning from, step by step. There may be several, and every other
  // call may come between two steps, as a play knows chunks by their fingerprints only. It may be
  // dropped at any step. REQUIRES: the policy outlives it.
  class ChainPlay {
   public:
    virtual ~ChainPlay() = default;
    // One step: does about the work of `links` links, however long the chain is. Returns whether
    // there is more to do.
    virtual bool GoOn(size_t links) = 0;
  };
  static constexpr size_t kWhole = UINT32_MAX;  // links: to the end
  // The whole chain of one part of a request that came in slices, head first; slots are ignored. A
  // chain may be told in pieces of at least kLongestChain, each of which counts as a chain. Returns
  // the play, not begun yet. Null: the policy does not learn from chains.
  static constexpr size_t kLongestChain = 512;
  virtual std::unique_ptr<ChainPlay> OnChain(std::span<const ChainLink> /*chain*/,
                                             MonotonicTime /*now*/) {
    return nullptr;
  }
  // `chunk.slot` entered the tier. A chunk whose parent was touched lately is placed just behind it
  // (older), else it is the youngest: new data is not the first to go, unless transient, or the
  // policy expects fewer hits of it than of all others ("reuse").
  // REQUIRES: the slot is not in the policy.
  virtual void OnInsert(const NewChunk& chunk, MonotonicTime now) = 0;
  // REQUIRES: the slot is in the policy (parked or not).
  virtual void OnErase(ChunkSlot slot, EraseReason reason) = 0;

  // The chunk to give up next, still in the policy until OnErase. None: nothing unparked is left.
  // May return a parked slot, if many were touched while parked; then park it again and retry.
  virtual std::optional<ChunkSlot> Victim() = 0;
  // The victim cannot go now (leased, in flight, dirty): leaves the victim order, keeps its
  // history. REQUIRES: in the policy, and not parked unless Victim() said so.
  virtual void Park(ChunkSlot slot) = 0;
  // The chunk can go again. It was next in line when it was parked, so it is next again, unless it
  // was touched meanwhile. No-op when not parked.
  virtual void Unpark(ChunkSlot slot) = 0;

  // After OnInsert: memory that the next inserts need. Whoever holds no lock gives it to
  // GrowingMemory::Touch. Empty: none is due.
  virtual std::span<std::byte> MemoryDue() { return {}; }
  // Slots below `end` are taken, by chunks that are not in this policy. The next inserts have slots
  // from `end` on, so MemoryDue answers with the memory of those.
  virtual void ExpectSlotsFrom(uint32_t /*end*/) {}
  // OnInsert of this slot comes soon: prefetches the memory that it reads into the CPU's caches.
  // REQUIRES: below max_chunks.
  virtual void Prefetch(ChunkSlot /*slot*/) const {}

  // What the policy has learned, for LoadLearned in another process. Empty: nothing worth keeping.
  // LoadLearned ignores what another version or another policy has saved.
  virtual std::string SaveLearned() const { return {}; }
  virtual void LoadLearned(absl::string_view /*saved*/) {}

  virtual size_t size() const = 0;  // chunks in the policy, parked ones included
  // A chunk's place in the order of eviction: of two, the lower goes first, as far as is known. For
  // saving that order chunk by chunk. REQUIRES: in the policy.
  virtual int64_t Recency(ChunkSlot slot) const = 0;
  // The highest recency so far. A later touch or insert gives a chunk a higher one, unless it
  // leaves the chunk where it is, puts it behind its parent or is transient.
  virtual int64_t Newest() const = 0;
  // Slots from the first to go to the last. Parked slots come first, except those touched since,
  // which are at their touched place. For tests: this call alone takes time that grows with size().
  // REQUIRES: the policy shares its memory with none.
  virtual std::vector<ChunkSlot> EvictionOrder() const = 0;
};

struct PolicyOptions {
  uint32_t max_chunks = 0;  // slots are below this
  // A policy of the same name and max_chunks. Both keep their notes on slots in the same memory,
  // which may outlive that policy. For policies that never have the same slot at once: those that
  // divide the chunks of one tier among them.
  EvictionPolicy* shares_memory_with = nullptr;
};

// Known names: those of EvictionPolicyNames. Null for another name.
std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(absl::string_view name,
                                                   const PolicyOptions& options);
// For messages: every name that MakeEvictionPolicy knows.
std::vector<std::string> EvictionPolicyNames();

}  // namespace kvkeep
