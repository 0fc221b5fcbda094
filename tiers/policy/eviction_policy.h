// EvictionPolicy: which chunk of a tier goes next. A pure state machine over ids.
//
// It knows nothing of bytes' places, leases, I/O or locks: the owner (the store, for each tier; the
// `simulate` verb) tells it what happens and asks for victims. Not thread-safe; no call blocks or
// takes time that grows with the number of chunks: only with the links it is given.
//
// A ChunkSlot is a small dense number, unique among the chunks that exist at one moment and reused
// after OnErase. A fingerprint is a 64-bit hash of the chunk's identity that outlives eviction (for
// ghosts); two chunks may share one, so it may mislead a heuristic but never an invariant.
//
// Order within a request: an engine that loses the head of a prefix loses all of it, so a request's
// chunks are touched tail first: the head ends as the youngest.
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
  // More of the chain that the last calls told of: the links just before those. So a long chain is
  // told from its tail to its head, and what else happens comes in between.
  virtual void OnRequestContinued(std::span<const ChainLink> chain, MonotonicTime now) = 0;
  // Whether it learns from whole chains. One that does has them from OnRequest; of a request in
  // slices, OnRequest is told no link at all, the slices follow by OnRequestContinued, and OnChain
  // ends it. So slices of several requests may be mixed.
  virtual bool LearnsFromChains() const { return false; }
  // A chain on its way into what the policy learns. Several may be, and every other call may come
  // in between, as it knows chunks by their fingerprints only. Dropped before it is over, it leaves
  // the policy whole. REQUIRES: the policy outlives it.
  class ChainPlay {
   public:
    virtual ~ChainPlay() = default;
    // Goes on for about as long as so many links of a chain take, however long the chain is.
    // Returns whether there is more to do.
    virtual bool GoOn(size_t links) = 0;
  };
  static constexpr size_t kWhole = UINT32_MAX;  // links: to the end
  // The chain of one part of such a request, head first; slots are not looked at. It may be told
  // in pieces of at least kLongestChain, which count as chains of their own. Nothing of it is
  // played yet. Null: one that does not learn from chains.
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
  // It can go again. A parked chunk was next in line, so it is again, unless touched meanwhile.
  // No-op when not parked.
  virtual void Unpark(ChunkSlot slot) = 0;

  // After OnInsert: memory that the next ones need, for GrowingMemory::Touch by somebody who holds
  // no lock; empty when there is none.
  virtual std::span<std::byte> MemoryDue() { return {}; }
  // Slots below `end` are taken by chunks of others: the next to come have those from there on, and
  // theirs is the memory that MemoryDue tells next.
  virtual void ExpectSlotsFrom(uint32_t /*end*/) {}
  // OnInsert of this slot comes soon: what it looks at is brought near. REQUIRES: below max_chunks.
  virtual void Prefetch(ChunkSlot /*slot*/) const {}

  // What it has learned, for LoadLearned of another process; empty: nothing that is worth keeping.
  // What another version or policy saved is ignored.
  virtual std::string SaveLearned() const { return {}; }
  virtual void LoadLearned(absl::string_view /*saved*/) {}

  virtual size_t size() const = 0;  // chunks in the policy, parked ones included
  // The lower, the sooner it goes, as far as is known; for saving recency chunk by chunk.
  // REQUIRES: in the policy.
  virtual int64_t Recency(ChunkSlot slot) const = 0;
  // A touch or insert after this gives a chunk a recency above it, unless it leaves the chunk where
  // it is, puts it behind its parent or is transient.
  virtual int64_t Newest() const = 0;
  // Slots from the first to go to the last: parked ones first, but those touched since at their
  // touched place. For tests; it alone takes time that grows with size(). REQUIRES: its memory is
  // shared with none.
  virtual std::vector<ChunkSlot> EvictionOrder() const = 0;
};

struct PolicyOptions {
  uint32_t max_chunks = 0;  // slots are below this
  // One of the same name and max_chunks: both keep what they note of slots in the same memory,
  // which may outlive it. For policies that never have the same slot at once; as chunks of one tier
  // do that are divided among several.
  EvictionPolicy* shares_memory_with = nullptr;
};

// Known names: those of EvictionPolicyNames. Null for another name.
std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(absl::string_view name,
                                                   const PolicyOptions& options);
// For messages: every name that MakeEvictionPolicy knows.
std::vector<std::string> EvictionPolicyNames();

}  // namespace kvkeep
