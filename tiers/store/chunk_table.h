// ChunkTable: every chunk the store knows, found by identity or by slot.
//
// Slots are dense and stable while a chunk lives. The map is many small ones sized from max_chunks,
// so that growing never stalls a caller. Not thread-safe: the core's lock protects it.
#pragma once

#include <absl/container/flat_hash_set.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tiers/base/extent.h"
#include "tiers/base/image.h"
#include "tiers/base/key.h"
#include "tiers/index/record.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

enum class G2State : uint8_t {
  kAbsent,
  kReading,   // space taken, a promotion fills it
  kResident,  // whole and verified
  kFailed,    // its promotion failed while readers hold it: only their pins keep the space
};

enum class G3State : uint8_t {
  kAbsent,      // with a G2 copy: unbacked
  kQueued,      // dirty, waiting for its write-back
  kWriting,     // dirty, bytes on their way
  kCommitting,  // dirty, bytes written, index record on its way
  kStored,      // visible
};

struct Chunk {
  ChunkId id;
  ImageShape shape;
  ExtentList g2;
  ExtentList g3;
  Incarnation g3_incarnation;
  Generation g3_generation;    // also tells a queued write-back whether it is still this chunk's
  CommitSequence g3_sequence;  // of its index record, once stored
  uint32_t pins = 0;           // leases and readers: the G2 bytes stay
  uint16_t device = 0;         // of the G3 copy
  TenantId tenant;             // whose pool the G2 copy lies in, while there is one
  G2State g2_state = G2State::kAbsent;
  G3State g3_state = G3State::kAbsent;
  bool live = false;        // slot in use
  bool detached = false;    // deleted: not found any more, goes when the last user does
  bool g3_reading = false;  // a promotion reads the G3 extents
  bool transient = false;
  bool in_g2_policy = false;
  bool in_g3_policy = false;
  bool unconfirmed = false;  // recovered after a power cut; its header was not read yet

  bool dirty() const {
    return g3_state == G3State::kQueued || g3_state == G3State::kWriting ||
           g3_state == G3State::kCommitting;
  }
  bool has_g2_space() const { return g2_state != G2State::kAbsent; }
  uint64_t blocks() const { return shape.blocks().value(); }
};

class ChunkTable {
 public:
  ChunkTable(uint64_t max_chunks, uint64_t hash_seed);

  // kNoSlot when unknown (or detached).
  ChunkSlot Find(const ChunkId& id) const;
  // A new chunk, findable. kNoSlot when the table is full. REQUIRES: Find(id) == kNoSlot.
  ChunkSlot Create(const ChunkId& id, const ImageShape& shape);
  // From now on the chunk is reached by slot only. REQUIRES: not detached.
  void Detach(ChunkSlot slot);
  // Frees the slot.
  void Destroy(ChunkSlot slot);

  Chunk& at(ChunkSlot slot) {
    return slabs_[slot.value() / kSlabChunks][slot.value() % kSlabChunks];
  }
  const Chunk& at(ChunkSlot slot) const {
    return slabs_[slot.value() / kSlabChunks][slot.value() % kSlabChunks];
  }
  uint64_t size() const { return size_; }
  bool full() const { return size_ >= max_chunks_; }
  // Slots ever used are below this; check `live` when walking.
  uint32_t slot_end() const { return slot_end_; }
  Fingerprint fingerprint(const ChunkId& id) const { return Fingerprint(hash_(id)); }

 private:
  static constexpr uint32_t kSlabChunks = 1024;

  // Maps hold slots and hash the identity behind them: a third of the memory of storing it twice.
  struct Hash {
    using is_transparent = void;
    const ChunkTable* table;
    size_t operator()(uint32_t slot) const { return (*this)(table->at(ChunkSlot(slot)).id); }
    size_t operator()(const ChunkId& id) const { return table->hash_(id); }
  };
  struct Equal {
    using is_transparent = void;
    const ChunkTable* table;
    bool operator()(uint32_t a, uint32_t b) const { return a == b; }
    bool operator()(uint32_t a, const ChunkId& b) const { return table->at(ChunkSlot(a)).id == b; }
    bool operator()(const ChunkId& a, uint32_t b) const { return (*this)(b, a); }
  };
  using Shard = absl::flat_hash_set<uint32_t, Hash, Equal>;

  // The high bits choose the shard; the set inside uses the low ones.
  Shard& shard(const ChunkId& id) { return shards_[hash_(id) >> shard_shift_]; }
  const Shard& shard(const ChunkId& id) const { return shards_[hash_(id) >> shard_shift_]; }

  const uint64_t max_chunks_;
  const ChunkIdHash hash_;
  int shard_shift_ = 63;
  std::vector<Shard> shards_;
  std::vector<std::unique_ptr<Chunk[]>> slabs_;
  std::vector<uint32_t> free_slots_;
  uint32_t slot_end_ = 0;
  uint64_t size_ = 0;
};

}  // namespace kvkeep::store_internal
