// ChunkTable: every chunk the store knows, found by identity or by slot.
//
// Slots are dense, and stable while a chunk lives. The map has its full size from the start: 12
// bytes for each chunk that the table may have. If the pages of slots are touched in the
// background, so are the map's. No call takes more than some microseconds, except FindAll, which
// takes about 50 ns per chunk if all data comes from memory. Not thread-safe: the store's lock
// protects it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tiers/base/extent.h"
#include "tiers/base/growing_memory.h"
#include "tiers/base/image.h"
#include "tiers/base/key.h"
#include "tiers/index/record.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/policy/slot_arrays.h"
#include "tiers/store/incarnations.h"
#include "tiers/store/packed_extents.h"
#include "tiers/store/packed_values.h"
#include "tiers/store/remote_ages.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

enum class G2State : uint8_t {
  kAbsent,
  kReading,     // space taken, a promotion fills it
  kUnverified,  // an earlier process left it whole; its bytes are not checked yet
  kVerifying,   // the same, and its bytes are being checked
  kResident,    // whole and verified
  kFailed,      // its promotion or check failed; only the pins of its readers keep it
  kAway,        // as kFailed, because the tier that it was read from is out of reach
};

enum class G3State : uint8_t {
  kAbsent,      // with a G2 copy: unbacked
  kQueued,      // dirty, waiting for its write-back
  kWriting,     // dirty, bytes on their way
  kCommitting,  // dirty, bytes written, index record on its way
  kStored,      // visible
};

// One for each chunk, so its size is most of the memory that a chunk costs. The fields that a
// lookup reads come first.
struct Chunk {
  ChunkId id;
  uint32_t pins = 0;    // leases and readers: the G2 bytes stay
  uint16_t device = 0;  // of the G3 copy
  PackedTenant tenant;  // the owner, whose pool has the G2 copy
  G2State g2_state : 4 = G2State::kAbsent;
  G3State g3_state : 4 = G3State::kAbsent;
  RemoteAges::Mark beyond = RemoteAges::kUnknown;  // the age of its image beyond the node
  bool live : 1 = false;        // slot in use
  bool detached : 1 = false;    // deleted: not found any more, goes when the last user does
  bool g3_reading : 1 = false;  // a promotion reads the G3 extents
  bool transient : 1 = false;
  bool in_g2_policy : 1 = false;
  bool in_g3_policy : 1 = false;
  bool unconfirmed : 1 = false;  // recovered after a power cut; its header was not read yet
  bool doubtful : 1 = false;     // a power cut may have taken data of its G3 copy
  bool unadmitted : 1 = false;   // G3's admission did not want it: offered again at its next use
  bool told_g2 : 1 = false;      // events (events.h) have told that a lookup finds it in G2
  bool told_g3 : 1 = false;      // the same of G3, if its device is readable
  bool waits_unbacked : 1 = false;  // in its tenant's UnbackedQueue
  bool recalled : 1 = false;  // it came from beyond the node, and nobody here has put it since
  bool sending : 1 = false;   // it is being written beyond the node
  bool noted_unbacked : 1 = false;  // counted as a chunk that G2 alone holds
  bool recency_noted : 1 = false;   // in its device's UnsavedRecency

  PackedShape shape;
  IncarnationNumber g3_incarnation;
  PackedExtents g2;
  PackedExtents g3;
  Generation g3_generation;    // also tells a queued write-back whether it is still this chunk's
  CommitSequence g3_sequence;  // of its index record, once stored

  bool dirty() const {
    return g3_state == G3State::kQueued || g3_state == G3State::kWriting ||
           g3_state == G3State::kCommitting;
  }
  bool has_g2_space() const { return g2_state != G2State::kAbsent; }
  // G2 has a whole image, as far as is known.
  bool in_g2() const {
    return g2_state == G2State::kResident || g2_state == G2State::kUnverified ||
           g2_state == G2State::kVerifying;
  }
  // Returns where a reader's bytes come from. kG4: they are on their way from beyond the node.
  Tier lies_in() const {
    if (in_g2()) return Tier::kG2;
    return recalled && g2_state == G2State::kReading ? Tier::kG4 : Tier::kG3;
  }
  bool failed() const { return g2_state == G2State::kFailed || g2_state == G2State::kAway; }
  // G2 has the image whole and verified.
  bool resident() const { return g2_state == G2State::kResident; }
  // It has a Promotion.
  bool being_read() const {
    return g2_state == G2State::kReading || g2_state == G2State::kVerifying;
  }
  // Its bytes in G2 are in use: by readers, a write-back, or a promotion that writes them.
  bool in_use() const { return pins > 0 || dirty() || being_read() || sending; }
  // Its copy in G2 may go for the space that it takes.
  bool evictable_from_g2() const;
  uint64_t blocks() const { return shape.blocks().value(); }
};
static_assert(sizeof(Chunk) == 104);

class ChunkTable {
 public:
  using Link = EvictionPolicy::ChainLink;

  static constexpr uint64_t kMostChunks = 2'800'000'000;

  // At most slots->max_slots() chunks, and kMostChunks; it gives out those slots.
  ChunkTable(std::shared_ptr<SlotArrays> slots, uint64_t hash_seed);
  ~ChunkTable();

  // Returns the chunk's slot; kNoSlot: the chunk is unknown or detached.
  ChunkSlot Find(const ChunkId& id) const { return FindHashed(id, hash_(id)); }
  // The part of that key that belongs to the chunk, likewise.
  ChunkSlot FindParent(const Chunk& chunk, const std::optional<ChunkKey>& parent) const {
    return parent.has_value() ? Find({chunk.id.ns, *parent, chunk.id.part}) : kNoSlot;
  }
  // Returns whether the slot still is this chunk's after a yield, and the chunk can be found.
  bool StillIs(ChunkSlot slot, const ChunkId& id) const {
    return at(slot).live && !at(slot).detached && at(slot).id == id;
  }
  // Finds the chunk of every key x part, key-major, with the reads of many entries under way at
  // once. `found` has as many links; each gets the chunk's slot, or kNoSlot, and its fingerprint.
  void FindAll(const NamespaceDigest& ns, std::span<const ChunkKey> keys,
               std::span<const PartId> parts, std::span<Link> found) const;
  // Creates a chunk that can be found. kNoSlot: the table is full. REQUIRES: Find(id) == kNoSlot.
  ChunkSlot Create(const ChunkId& id, const ImageShape& shape);
  // Makes the chunk reachable by its slot only. REQUIRES: it is not detached.
  void Detach(ChunkSlot slot);
  // Frees the slot.
  void Destroy(ChunkSlot slot);

  Chunk& at(ChunkSlot slot) { return chunks_[slot.value()]; }
  const Chunk& at(ChunkSlot slot) const { return chunks_[slot.value()]; }
  // Fetch memory that Find() or Create(), or at(), reads soon. They need no lock.
  void PrefetchFind(const ChunkId& id) const { PrefetchEntry(hash_(id)); }
  void Prefetch(ChunkSlot slot) const {
    const auto* const first = reinterpret_cast<const std::byte*>(chunks_ + slot.value());
    __builtin_prefetch(first);
    __builtin_prefetch(first + sizeof(Chunk) - 1);
  }
  uint64_t size() const { return size_; }
  bool full() const { return size_ >= slots_->max_slots(); }
  // Returns a bound: all slots ever used are below it. A walk has to check `live`.
  uint32_t slot_end() const { return slot_end_; }
  Fingerprint fingerprint(const ChunkId& id) const { return Fingerprint(hash_(id)); }

 private:
  // Open addressing, linear probing, at most two thirds full. The tag, the hash's high bits, tells
  // most strangers apart without a look at their chunks, and says where the entry belongs.
  struct Entry {
    uint32_t tag = 0;
    uint32_t slot_plus_one = 0;
    bool empty() const { return slot_plus_one == 0; }
    ChunkSlot slot() const { return ChunkSlot(slot_plus_one - 1); }
  };
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  uint64_t Home(uint32_t tag) const { return uint64_t{tag} * entries_end_ >> 32; }
  uint64_t Next(uint64_t entry) const { return entry + 1 == entries_end_ ? 0 : entry + 1; }
  // Returns how far behind `from` an entry is; the beginning follows the end.
  uint64_t Behind(uint64_t from, uint64_t entry) const {
    return entry >= from ? entry - from : entry + entries_end_ - from;
  }
  void PrefetchEntry(uint64_t hash) const { __builtin_prefetch(&entries_[Home(TagOf(hash))]); }
  ChunkSlot FindHashed(const ChunkId& id, uint64_t hash) const;
  // Returns the first chunk whose tag is the hash's, very likely the one; kNoSlot: there is none.
  ChunkSlot Candidate(uint64_t hash) const;

  const std::shared_ptr<SlotArrays> slots_;
  MemoryToucher map_toucher_;  // apart: the first slots need not wait for all of the map
  const ChunkIdHash hash_;
  const uint64_t entries_end_;
  GrowingMemory map_;
  Entry* const entries_;      // map_
  Chunk* const chunks_;       // of slots_; those below slot_end_ are constructed
  ChunkSlot free_ = kNoSlot;  // the first free slot; the others follow by Chunk::pins
  uint32_t slot_end_ = 0;
  uint64_t size_ = 0;
};

}  // namespace kvkeep::store_internal
