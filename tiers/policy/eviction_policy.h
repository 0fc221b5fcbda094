// EvictionPolicy: which chunk of a tier goes next. A pure state machine over ids.
//
// It knows nothing of bytes' places, leases, I/O or locks. Its owner tells it what happens and
// asks for victims: the `simulate` verb, or the store, which has one for each tenant in G2 and one
// for each tenant on each device of G3. Not thread-safe. No call blocks, and
// its time grows with the links it is given, not with the number of chunks.
//
// Order within a request: an engine that loses the head of a prefix loses all of it. So a request's
// chunks are touched from the tail to the head, and the head ends as the youngest.
//
// A policy that learns from whole chains has a ChainLearner (chain_learner.h) beside it.
#pragma once

#include <absl/strings/string_view.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/policy/chunk_slot.h"
#include "tiers/policy/slot_arrays.h"

namespace kvkeep {

class ChainLearner;

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
    bool transient = false;      // read once: the first to go
  };
  // A long chain is told in slices, from its tail to its head, and other calls may come between
  // two slices.
  enum class Slice {
    kFirst,  // of a request that begins here; perhaps the only one
    kNext,   // the links just before those that the last call told of
  };
  enum class EraseReason {
    kEvicted,  // made room: may become a ghost
    kRemoved,  // deleted, cleared, corrupt, lost: forget it
  };

  virtual ~EvictionPolicy() = default;

  // Tells of a request for `links`, head first, some present and some not. Present links count as
  // hit and touched. Told before the inserts that the request causes.
  virtual void OnRequest(std::span<const ChainLink> links, MonotonicTime now, Slice slice) = 0;
  // `chunk.slot` entered the tier. A chunk whose parent was touched lately is placed just behind it
  // (older), else it is the youngest: new data is not the first to go, unless transient, or the
  // policy expects less of it than of all others ("reuse", "seconds").
  // REQUIRES: the slot is not in the policy.
  virtual void OnInsert(const NewChunk& chunk, MonotonicTime now) = 0;
  // REQUIRES: the slot is in the policy (parked or not).
  virtual void OnErase(ChunkSlot slot, EraseReason reason) = 0;

  // The chunk to give up next, still in the policy until OnErase. None: nothing unparked is left.
  // May return a parked slot, if many were touched while parked; then park it again and retry.
  virtual std::optional<ChunkSlot> Victim() = 0;
  // Returns whether Victim() has one, without choosing it.
  virtual bool HasVictim() { return Victim().has_value(); }
  // The victim cannot go now (leased, in flight, dirty): leaves the victim order, keeps its
  // history. REQUIRES: in the policy, and not parked unless Victim() said so.
  virtual void Park(ChunkSlot slot) = 0;
  // The chunk can go again. It was next in line when it was parked, so it is next again, unless it
  // was touched meanwhile. No-op when not parked.
  virtual void Unpark(ChunkSlot slot) = 0;

  // Returns a chunk's place in the order of eviction, for saving that order chunk by chunk. The
  // chunk with the lower place goes first, as far as is known. REQUIRES: in the policy.
  virtual int64_t Recency(ChunkSlot slot) const = 0;
  // The highest recency so far. A later touch or insert gives a chunk a higher one. Exceptions: a
  // touch that does not move the chunk, an insert behind a parent, a transient chunk.
  virtual int64_t Newest() const = 0;
  // Returns what learns for this policy, and perhaps for others; null: nothing does.
  virtual ChainLearner* learner() { return nullptr; }

  size_t size() const { return size_; }  // chunks in the policy, parked ones included

 protected:
  size_t size_ = 0;  // kept by OnInsert and OnErase
};

struct PolicyOptions {
  uint32_t max_chunks = 0;  // slots are below this
  // Holds the policy's notes on slots. The owner of the slots calls SlotArrays::Use as it gives
  // them out. Null: the policy makes its own, and nothing is touched ahead.
  std::shared_ptr<SlotArrays> slots;
  // A policy of the same name and options. Both keep their notes on slots in the same memory,
  // which may outlive that policy. Use this only for policies that share one tier and never hold
  // the same slot.
  EvictionPolicy* shares_memory_with = nullptr;
  // A policy of the same name, options and memory, for other chunks of the same tenant and tier:
  // its learner is this one's too. Null, or a policy that has none: this one has its own.
  EvictionPolicy* learns_with = nullptr;
  // Somebody calls the learner's Work soon after it was told something. Else the policy has it
  // catch up when a victim is asked for and none is known.
  bool learns_apart = false;
};

// Known names: those of EvictionPolicyNames. Null for another name.
std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(absl::string_view name,
                                                   const PolicyOptions& options);
// For messages: every name that MakeEvictionPolicy knows.
std::vector<std::string> EvictionPolicyNames();

}  // namespace kvkeep
